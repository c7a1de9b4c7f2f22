# claim: a program that ignores, blocks or handles every signal it can is ended at the wall limit with all its children
# weaken: kill
# flags: --wall 500ms
# limit: wall
import os
import signal
import time

for number in signal.valid_signals():
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.fork()
end = time.monotonic() + 15
while time.monotonic() < end:
    time.sleep(0.1)

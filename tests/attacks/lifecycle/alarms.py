# claim: a storm of alarms, each of which starts a process that outlives it, ends with the program
# weaken: kill
# flags: --pids 32
import os
import signal
import time


def multiply(*_):
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(15)
            os._exit(0)
    except OSError:
        pass


signal.signal(signal.SIGALRM, multiply)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
end = time.monotonic() + 0.3
while time.monotonic() < end:
    pass
signal.setitimer(signal.ITIMER_REAL, 0)
print("CONTAINED")

# claim: a child that stops every process of the sandbox, at once or one by one, and then itself, does not stop the end at the wall limit
# weaken: kill
# flags: --wall 500ms
# limit: wall
import os
import signal
import sys
import time

if os.getpid() >= 100:
    print("ESCAPED: not in a PID namespace of its own; nothing was signalled")
    sys.exit()
if os.fork() == 0:
    try:
        os.kill(-1, signal.SIGSTOP)
        print("ESCAPED: everybody at once was signalled", flush=True)
    except PermissionError:
        pass
    for pid in range(1, 500):
        try:
            if pid != os.getpid():
                os.kill(pid, signal.SIGSTOP)
        except OSError:
            pass
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(15)

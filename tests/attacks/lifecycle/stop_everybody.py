# claim: a child that stops every process of the sandbox, and then itself, does not stop the end at the wall limit
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
    os.kill(-1, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(15)

# claim: whatever a process asks to get when its parent dies, it ends with the program
# weaken: kill
import ctypes
import os
import signal
import time

PR_SET_PDEATHSIG = 1
ready, tell = os.pipe()
WANTED = [0, signal.SIGCONT, signal.SIGSTOP, signal.SIGURG]
for wanted in WANTED:
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, wanted)
        os.write(tell, b".")
        time.sleep(15)
        os._exit(0)
for _ in WANTED:
    os.read(ready, 1)
print("CONTAINED")

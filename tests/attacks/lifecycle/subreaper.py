# claim: a process that takes over orphans from init (as their subreaper) ends with the program, and they do too
# weaken: kill
import ctypes
import os
import time

PR_SET_CHILD_SUBREAPER = 36
ready, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    reaper = os.getpid()
    if os.fork() == 0:
        if os.fork() == 0:
            while os.getppid() != reaper:
                time.sleep(0.01)
            os.write(tell, b".")
            time.sleep(15)
        os._exit(0)
    time.sleep(15)
    os._exit(0)
os.read(ready, 1)
print("CONTAINED")

# claim: a daemon that has let go of every descriptor, its folder and its name ends with the program
# weaken: kill
import ctypes
import os
import time

PR_SET_NAME = 15
ready, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.chdir("/")
    os.umask(0)
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"kworker/0:1")
    os.closerange(0, 1024)  # also `tell`, which lets the program go on
    time.sleep(15)
    os._exit(0)
os.close(tell)
os.read(ready, 1)
print("CONTAINED")

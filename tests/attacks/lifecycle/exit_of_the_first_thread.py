# claim: a program whose first thread is gone while others run is ended at the wall limit
# weaken: kill
# flags: --wall 500ms
# limit: wall
import ctypes
import threading
import time

CALL = {"exit": 60}  # x86_64; ends this thread alone, not the process
threading.Thread(target=time.sleep, args=(15,)).start()
ctypes.CDLL(None).syscall(CALL["exit"], 0)

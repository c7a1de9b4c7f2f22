# claim: a program that the kernel holds in vfork until its child is done is ended at the wall limit
# weaken: kill
# flags: --wall 500ms
# limit: wall
import ctypes
import time

libc = ctypes.CDLL(None)
if libc.vfork() == 0:
    # The parent can't even take a signal it handles until this ends; it shares our memory, so it must not go on.
    time.sleep(15)
    libc._exit(0)

# claim: a sandbox whose init is made idle and starved of CPU ends at its time limit all the same
# weaken: seccomp,limits
# flags: --wall 1s --cpus 0.5
# limit: wall
import ctypes
import os
import time

libc = ctypes.CDLL(None, use_errno=True)
SETAFFINITY, SETSCHEDULER, SETPRIORITY = 203, 144, 141
SCHED_IDLE, PRIO_PROCESS, PRIO_USER = 5, 0, 2
refused = [
    libc.syscall(SETAFFINITY, 1, 8, ctypes.byref(ctypes.c_ulong(1))),
    libc.syscall(SETSCHEDULER, 1, SCHED_IDLE, ctypes.byref(ctypes.c_int(0))),
    libc.syscall(SETPRIORITY, PRIO_PROCESS, 1, 19),
    libc.syscall(SETPRIORITY, PRIO_USER, 0, 19),
]
if 0 in refused:
    print("ESCAPED: init's scheduling was changed:", refused, flush=True)
os.sched_setaffinity(0, {0})
start = time.monotonic()
for _ in range(15):
    if os.fork() == 0:
        while time.monotonic() - start < 15:
            pass
        os._exit(0)
time.sleep(15)
print("CONTAINED")

# claim: at most 1024 timers run for a sandbox's processes
# weaken: rlimits
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGUSR1 = 1, 0, 10
event = (ctypes.c_int * 16)(0, 0, SIGUSR1, SIGEV_SIGNAL)
timer = ctypes.c_void_p()
made = 0
while made < 5000 and libc.timer_create(CLOCK_MONOTONIC, event, ctypes.byref(timer)) == 0:
    made += 1
print("made:", made, os.strerror(ctypes.get_errno()))
if made > 1024:
    print("ESCAPED:", made, "timers")
print("CONTAINED")

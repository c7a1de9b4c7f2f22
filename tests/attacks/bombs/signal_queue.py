# claim: at most 1024 signals wait for a sandbox's processes
# weaken: rlimits
import ctypes
import os
import signal

libc = ctypes.CDLL(None, use_errno=True)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
queued = 0
while queued < 5000 and libc.sigqueue(os.getpid(), signal.SIGRTMIN, None) == 0:
    queued += 1
print("queued:", queued)
if queued > 1024:
    print("ESCAPED:", queued, "signals wait")
print("CONTAINED")

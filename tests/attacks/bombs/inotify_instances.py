# claim: a sandbox can't use up the host user's (in root mode: root's) inotify instances, of which there are 128 in all
# weaken: seccomp,forbid_namespaces
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
taken = 0
while taken < 64:
    if libc.inotify_init1(0) < 0:
        print("refused:", os.strerror(ctypes.get_errno()))
        break
    taken += 1
print("taken:", taken)
if taken == 64:
    print("ESCAPED: half of the host's inotify instances are taken")
print("CONTAINED")

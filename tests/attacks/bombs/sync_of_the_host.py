# claim: a sandbox can't make the host write its file systems back to disk
# weaken: seccomp
import ctypes
import errno
import os

libc = ctypes.CDLL(None, use_errno=True)
# Told apart from a refusal, or from a mere "done", by the kernel's own answer to a descriptor that does not exist.
if libc.syncfs(-1) == -1 and ctypes.get_errno() == errno.EBADF:
    program = os.open("/usr/bin/bash", os.O_RDONLY)
    print("ESCAPED: syncfs of the host's disk:", os.strerror(-libc.syncfs(program)))
print("CONTAINED")

# claim: code can't make the host write back its disks' caches
# weaken: seccomp
import ctypes
import errno

SYNCFS = 306
libc = ctypes.CDLL(None, use_errno=True)
# No descriptor: the kernel itself would say EBADF, whereas a filter says EPERM or that all is done.
result = libc.syscall(SYNCFS, -1)
why = ctypes.get_errno()
if result == -1 and why == errno.EBADF:
    print("ESCAPED: syncfs is open, also for the disk under /usr")
else:
    print("refused: syncfs", result, errno.errorcode.get(why))
print("CONTAINED")

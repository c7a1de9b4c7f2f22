# claim: page faults can't be held up by userfaultfd, the classic help for kernel races
# weaken: seccomp
import ctypes
import errno
import os

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(name, number, *args):
    """A raw system call; refused means EPERM, or ENOSYS as from a kernel without it."""
    ctypes.set_errno(0)
    result = libc.syscall(*(ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in (number, *args)))
    why = errno.errorcode.get(ctypes.get_errno(), "")
    if result == -1 and why in ("EPERM", "ENOSYS"):
        print("refused:", name, why)
    else:
        print("ESCAPED:", name, "gave", result, why, flush=True)
    return result


USERFAULTFD = 323
USER_MODE_ONLY = 1

call("userfaultfd", USERFAULTFD, os.O_CLOEXEC)
call("userfaultfd for user mode", USERFAULTFD, os.O_CLOEXEC | USER_MODE_ONLY)
DEVICE = "/dev/userfaultfd"
print("ESCAPED: there is" if os.path.exists(DEVICE) else "absent:", DEVICE)
print("CONTAINED")

# claim: bits that the kernel throws away can't carry an argument past the filter
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


NUMBER = {"socket": 41, "prctl": 157, "ioctl": 16, "personality": 135}
UPPER = 0x1_00000000
AF_NETLINK, SOCK_RAW, SOCK_STREAM, AF_INET, IPPROTO_MPTCP = 16, 3, 1, 2, 262
PR_SET_TSC, TIOCSTI = 26, 0x5412

call("socket of family netlink", NUMBER["socket"], UPPER | AF_NETLINK, SOCK_RAW, 0)
call("socket of family unix + upper bits, raw", NUMBER["socket"], UPPER | 1, UPPER | SOCK_RAW, 0)
call("multipath TCP", NUMBER["socket"], AF_INET, SOCK_STREAM, UPPER | IPPROTO_MPTCP)
call("personality without randomisation", NUMBER["personality"], UPPER | 0x40000)
for name, number, args in (
    ("prctl SET_TSC", NUMBER["prctl"], (UPPER | PR_SET_TSC, 1)),
    ("ioctl TIOCSTI", NUMBER["ioctl"], (os.openpty()[1], UPPER | TIOCSTI, ctypes.create_string_buffer(b"x"))),
):
    ctypes.set_errno(0)
    result = libc.syscall(*(ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in (number, *args)))
    print("ESCAPED:" if result == 0 else "refused:", name, errno.errorcode.get(ctypes.get_errno(), ""))
print("CONTAINED")

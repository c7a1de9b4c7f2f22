# claim: calls that are newer than the list of the allowed are answered as by a kernel that lacks them
# weaken: seccomp
import ctypes
import errno

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


FIRST_NOT_LISTED, LAST = 450, 700
answered = []
for number in range(FIRST_NOT_LISTED, LAST):
    ctypes.set_errno(0)
    # Arguments that no call can make sense of.
    if libc.syscall(*[ctypes.c_long(number)] + [ctypes.c_long(-1)] * 6) != -1 or ctypes.get_errno() != errno.ENOSYS:
        answered.append(number)
print("ESCAPED: the kernel answers" if answered else "refused: all;", answered)
print("CONTAINED")

# claim: the machine's clocks can be neither set nor steered
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


NUMBER = {"settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "clock_adjtime": 305}
BAD_TIME = (ctypes.c_long * 2)(0, -1)  # the kernel would say EINVAL: nobody's clock is set by this case

call("settimeofday", NUMBER["settimeofday"], BAD_TIME, None)
for clock in (0, 1, 7, 11):
    call(f"clock_settime {clock}", NUMBER["clock_settime"], clock, BAD_TIME)
call("adjtimex", NUMBER["adjtimex"], (ctypes.c_long * 26)())
call("clock_adjtime", NUMBER["clock_adjtime"], 0, (ctypes.c_long * 26)())
print("CONTAINED")

# claim: performance events, of oneself or of the machine, can't be opened
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


PERF_EVENT_OPEN = 298
SOFTWARE, HARDWARE, TRACEPOINT = 1, 0, 2
EXCLUDE_KERNEL, EXCLUDE_HV = 1 << 5, 1 << 6

for kind in (SOFTWARE, HARDWARE, TRACEPOINT):
    for pid, cpu in ((0, -1), (-1, 0), (1, -1)):
        attributes = (ctypes.c_uint64 * 16)()
        attributes[0] = kind | 128 << 32  # type, size
        attributes[5] = EXCLUDE_KERNEL | EXCLUDE_HV
        call(f"event of kind {kind} for {pid} on {cpu}", PERF_EVENT_OPEN, attributes, pid, cpu, -1, 0)
print("CONTAINED")

# claim: address randomisation can't be turned off, nor old execution domains be asked for
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


PERSONALITY = 135
BITS = {
    "ADDR_NO_RANDOMIZE": 0x40000, "READ_IMPLIES_EXEC": 0x400000, "MMAP_PAGE_ZERO": 0x100000,
    "ADDR_COMPAT_LAYOUT": 0x200000, "PER_LINUX32": 8, "UNAME26": 0x20000, "WHOLE_SECONDS": 0x2000000,
    "ADDR_NO_RANDOMIZE with upper bits": 0x7_00040000,
}

for name, bits in BITS.items():
    call(name, PERSONALITY, bits)
print("CONTAINED")

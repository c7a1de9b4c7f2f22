# claim: no namespace of any kind can be made by unshare, alone or with a user namespace
# weaken: seccomp,forbid_namespaces
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


NAMESPACES = {
    "mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000,
    "pid": 0x20000000, "net": 0x40000000,
}

NAMESPACES["time"] = 0x80
UNSHARE = 272

for name, flag in NAMESPACES.items():
    for flags in (flag, flag | NAMESPACES["user"]):
        if os.fork() == 0:
            call(f"unshare {name} ({flags:#x})", UNSHARE, flags)
            os._exit(0)
        os.wait()
print("CONTAINED")

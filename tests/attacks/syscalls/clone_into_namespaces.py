# claim: clone makes processes but no namespaces
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

CLONE, SIGCHLD = 56, 17


def clone(name, flags):
    ctypes.set_errno(0)
    pid = libc.syscall(ctypes.c_long(CLONE), ctypes.c_long(flags | SIGCHLD), None, None, None, None)
    if pid == 0:
        os._exit(0)
    if pid == -1:
        print("refused:", name, errno.errorcode[ctypes.get_errno()])
        return
    os.waitpid(pid, 0)
    print("ESCAPED: a process in a new namespace:", name)


for name, flag in NAMESPACES.items():
    clone(name, flag)
    clone(f"{name} with user", flag | NAMESPACES["user"])
    # The kernel takes the flags as a whole word.
    clone(f"{name} with upper bits", flag | NAMESPACES["user"] | 1 << 40)
print("CONTAINED")

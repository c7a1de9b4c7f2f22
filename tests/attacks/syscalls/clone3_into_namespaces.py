# claim: clone3, whose flags no filter can read, is not there
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


CLONE3, SIGCHLD = 435, 17
FLAGS = {
    "user": 0x10000000, "user and net": 0x50000000, "user and mount": 0x10020000, "user and time": 0x10000080,
    "nothing": 0, "into a cgroup": 0x200000000,
}

for name, flags in FLAGS.items():
    arguments = (ctypes.c_uint64 * 11)(flags, 0, 0, 0, SIGCHLD)
    ctypes.set_errno(0)
    pid = libc.syscall(ctypes.c_long(CLONE3), arguments, ctypes.c_long(88))
    if pid == 0:
        os._exit(0)
    if pid == -1:
        print("refused:", name, errno.errorcode[ctypes.get_errno()])
    else:
        os.waitpid(pid, 0)
        print("ESCAPED: clone3 made a process with", name)
print("CONTAINED")

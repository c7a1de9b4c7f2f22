# claim: memory and descriptors of other processes, init among them, can't be taken
# weaken: seccomp
import ctypes
import errno
import os
import signal

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


NUMBER = {
    "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "pidfd_open": 434, "pidfd_getfd": 438,
    "process_madvise": 440, "process_mrelease": 448,
}
here = ctypes.create_string_buffer(16)
there = ctypes.create_string_buffer(b"from the other")


def vector(buffer):
    return (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 8)


child = os.fork()
if child == 0:
    signal.pause()
for pid in (child, 1):
    who = "init" if pid == 1 else "a child"
    for name in ("process_vm_readv", "process_vm_writev"):
        call(f"{name} of {who}", NUMBER[name], pid, vector(here), 1, vector(there), 1, 0)
    call(f"kcmp with {who}", NUMBER["kcmp"], os.getpid(), pid, 2, 0, 0)
    handle = libc.syscall(NUMBER["pidfd_open"], pid, 0)
    for descriptor in range(4):
        call(f"pidfd_getfd {descriptor} of {who}", NUMBER["pidfd_getfd"], handle, descriptor, 0)
    call(f"process_madvise of {who}", NUMBER["process_madvise"], handle, vector(there), 1, 20, 0)
    call(f"process_mrelease of {who}", NUMBER["process_mrelease"], handle, 0)
os.kill(child, signal.SIGKILL)
print("CONTAINED")

# claim: pages can't be gifted to pipes, hidden from the kernel or mapped in odd orders
# weaken: seccomp
import ctypes
import errno
import mmap
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


NUMBER = {"vmsplice": 278, "memfd_secret": 447, "remap_file_pages": 216, "map_shadow_stack": 453, "mseal": 462}
page = mmap.mmap(-1, 8192)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
reader, writer = os.pipe()

call("vmsplice", NUMBER["vmsplice"], writer, (ctypes.c_uint64 * 2)(address, 4096), 1, 8)
call("memfd_secret", NUMBER["memfd_secret"], 0)
call("remap_file_pages", NUMBER["remap_file_pages"], address, 4096, 0, 1, 0)
call("map_shadow_stack", NUMBER["map_shadow_stack"], 0, 4096, 0)
call("mseal", NUMBER["mseal"], address, 4096, 0)
print("CONTAINED")

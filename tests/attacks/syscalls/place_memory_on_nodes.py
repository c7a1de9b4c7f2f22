# claim: memory can't be moved between the machine's nodes
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


NUMBER = {"mbind": 237, "set_mempolicy": 238, "migrate_pages": 256, "move_pages": 279, "set_mempolicy_home_node": 450}
page = mmap.mmap(-1, 4096)
page[:1] = b"x"
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
nodes = ctypes.c_ulong(1)

call("mbind", NUMBER["mbind"], address, 4096, 2, ctypes.byref(nodes), 8, 0)
call("set_mempolicy", NUMBER["set_mempolicy"], 1, ctypes.byref(nodes), 8)
call("move_pages", NUMBER["move_pages"], 0, 1, (ctypes.c_ulong * 1)(address), None, (ctypes.c_int * 1)(), 0)
call("move_pages of init", NUMBER["move_pages"], 1, 1, (ctypes.c_ulong * 1)(address), None, (ctypes.c_int * 1)(), 0)
call("migrate_pages", NUMBER["migrate_pages"], os.getpid(), 8, ctypes.byref(nodes), ctypes.byref(nodes))
call("set_mempolicy_home_node", NUMBER["set_mempolicy_home_node"], address, 4096, 0, 0)
print("CONTAINED")

# claim: the newer mount calls (file descriptors instead of paths) are as closed as the old ones
# weaken: seccomp
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


NUMBER = {
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "mount_setattr": 442, "statmount": 457, "listmount": 458, "open_tree_attr": 467,
}
AT_FDCWD, AT_RECURSIVE, OPEN_TREE_CLONE = -100, 0x8000, 1
PLACE = b"/tmp/place"
os.mkdir(PLACE)

call("open_tree", NUMBER["open_tree"], AT_FDCWD, b"/usr", 0)
call("open_tree a copy", NUMBER["open_tree"], AT_FDCWD, b"/usr", OPEN_TREE_CLONE | AT_RECURSIVE)
call("open_tree_attr", NUMBER["open_tree_attr"], AT_FDCWD, b"/usr", OPEN_TREE_CLONE, None, 0)
call("fsopen", NUMBER["fsopen"], b"tmpfs", 0)
call("fspick", NUMBER["fspick"], AT_FDCWD, b"/tmp", 0)
call("fsconfig", NUMBER["fsconfig"], 0, 6, None, None, 0)
call("fsmount", NUMBER["fsmount"], 0, 0, 0)
call("move_mount", NUMBER["move_mount"], AT_FDCWD, PLACE, AT_FDCWD, PLACE, 0)
writable = (ctypes.c_uint64 * 4)(0, 1, 0, 0)  # attr_clr: MOUNT_ATTR_RDONLY
call("mount_setattr", NUMBER["mount_setattr"], AT_FDCWD, b"/usr", AT_RECURSIVE, writable, 32)
request = (ctypes.c_uint64 * 4)(24, 2**64 - 1, 0, 0)  # size, LSMT_ROOT
found = (ctypes.c_uint64 * 64)()
call("listmount", NUMBER["listmount"], request, found, 64, 0)
print("CONTAINED")

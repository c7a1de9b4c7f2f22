# claim: files can't be opened by handle, which would step around mounts and folders' permissions
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


NAME_TO_HANDLE_AT, OPEN_BY_HANDLE_AT = 303, 304
AT_FDCWD = -100
MAX_HANDLE = 128


def handle_of(path):
    handle = (ctypes.c_uint32 * (2 + MAX_HANDLE // 4))(MAX_HANDLE)
    mount = ctypes.c_int()
    call(f"name_to_handle_at {path}", NAME_TO_HANDLE_AT, AT_FDCWD, path.encode(), handle, ctypes.byref(mount), 0)
    return handle


for path in ("/usr", "/etc", "/tmp", "/mnt/data"):
    handle = handle_of(path)
    call(f"open_by_handle_at {path}", OPEN_BY_HANDLE_AT, os.open(path, os.O_RDONLY), handle, os.O_RDONLY)
# The root folder of an ext4 file system is inode 2, of generation 0: out of every bind mount.
handle = (ctypes.c_uint32 * 34)(8, 1, 2, 0)
call("open_by_handle_at inode 2", OPEN_BY_HANDLE_AT, os.open("/usr", os.O_RDONLY), handle, os.O_RDONLY)
print("CONTAINED")

# claim: nothing can be mounted, unmounted or made the root, not even from namespaces of one's own
# weaken: seccomp,forbid_namespaces,landlock
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


NUMBER = {"mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272}
NEWUSER_NEWNS = 0x10020000
MS_BIND, MS_REMOUNT, MNT_DETACH = 0x1000, 0x20, 2
PLACE = b"/tmp/place"
os.mkdir(PLACE)


def attack():
    call("mount tmpfs", NUMBER["mount"], b"none", PLACE, b"tmpfs", 0, None)
    call("mount proc", NUMBER["mount"], b"none", PLACE, b"proc", 0, None)
    call("bind /dev elsewhere", NUMBER["mount"], b"/dev", PLACE, None, MS_BIND, None)
    call("remount / writable", NUMBER["mount"], None, b"/", None, MS_REMOUNT | MS_BIND, None)
    call("umount2 /proc/sys", NUMBER["umount2"], b"/proc/sys", MNT_DETACH)
    call("pivot_root", NUMBER["pivot_root"], PLACE, PLACE)
    call("chroot", NUMBER["chroot"], PLACE)


if os.fork() == 0:
    call("unshare", NUMBER["unshare"], NEWUSER_NEWNS)
    attack()
    os._exit(0)
os.wait()
attack()
print("CONTAINED")

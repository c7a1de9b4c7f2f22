# claim: whole file systems can't be watched with fanotify
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


FANOTIFY_INIT, FANOTIFY_MARK = 300, 301
CLASS_NOTIF, CLASS_CONTENT, REPORT_FID, REPORT_PIDFD = 0, 4, 0x200, 0x80
MARK_ADD, MARK_FILESYSTEM, MARK_MOUNT, OPEN = 1, 0x100, 0x10, 0x20

group = call("fanotify_init unprivileged", FANOTIFY_INIT, CLASS_NOTIF | REPORT_FID, 0)
call("fanotify_init", FANOTIFY_INIT, CLASS_NOTIF | REPORT_PIDFD, 0)
call("fanotify_init that may deny", FANOTIFY_INIT, CLASS_CONTENT, 0)
for name, kind in (("folder", 0), ("mount", MARK_MOUNT), ("file system", MARK_FILESYSTEM)):
    call(f"fanotify_mark a {name}", FANOTIFY_MARK, group, MARK_ADD | kind, OPEN, -100, b"/usr/bin")
print("CONTAINED")

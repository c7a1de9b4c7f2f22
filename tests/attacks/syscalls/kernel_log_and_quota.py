# claim: the kernel's log and the disks' quotas are closed
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


SYSLOG, QUOTACTL, QUOTACTL_FD = 103, 179, 443
READ_ALL, SIZE_BUFFER = 3, 10
Q_SYNC, Q_GETFMT, Q_GETQUOTA = 0x800001, 0x800004, 0x800007

buffer = ctypes.create_string_buffer(4096)
call("syslog READ_ALL", SYSLOG, READ_ALL, buffer, 4096)
call("syslog SIZE_BUFFER", SYSLOG, SIZE_BUFFER, None, 0)
call("quotactl SYNC", QUOTACTL, Q_SYNC << 8, None, 0, None)
call("quotactl GETQUOTA", QUOTACTL, Q_GETQUOTA << 8, b"/dev/vda", os.getuid(), buffer)
call("quotactl_fd GETFMT", QUOTACTL_FD, os.open("/usr", os.O_RDONLY), Q_GETFMT << 8, 0, buffer)
print("CONTAINED")

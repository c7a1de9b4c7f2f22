# claim: no seccomp filter can be added: its notifier could lie to the programs under it
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


SECCOMP = 317
SET_MODE_FILTER, GET_ACTION_AVAIL, GET_NOTIF_SIZES = 1, 2, 3
NEW_LISTENER = 8

allow = (ctypes.c_uint64 * 1)(0x06 | 0x7FFF0000 << 32)  # BPF: return ALLOW
program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(allow))
call("seccomp GET_ACTION_AVAIL", SECCOMP, GET_ACTION_AVAIL, 0, ctypes.byref(ctypes.c_uint32(0x7FFF0000)))
call("seccomp GET_NOTIF_SIZES", SECCOMP, GET_NOTIF_SIZES, 0, ctypes.create_string_buffer(8))
call("seccomp SET_MODE_FILTER", SECCOMP, SET_MODE_FILTER, 0, program)
call("seccomp with a notifier", SECCOMP, SET_MODE_FILTER, NEW_LISTENER, program)
print("CONTAINED")

# claim: the older asynchronous calls (io_setup and its kin) are closed too
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


NUMBER = {"io_setup": 206, "io_destroy": 207, "io_getevents": 208, "io_submit": 209, "io_cancel": 210}
context = ctypes.c_ulong(0)

call("io_setup", NUMBER["io_setup"], 8, ctypes.byref(context))
call("io_submit", NUMBER["io_submit"], context.value, 0, None)
call("io_getevents", NUMBER["io_getevents"], context.value, 0, 0, None, None)
call("io_cancel", NUMBER["io_cancel"], context.value, None, None)
call("io_destroy", NUMBER["io_destroy"], context.value)
print("CONTAINED")

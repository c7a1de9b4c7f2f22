# claim: x86's own doors (I/O ports, local descriptor table, old sysctl and sysfs calls) are closed
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


NUMBER = {"modify_ldt": 154, "iopl": 172, "ioperm": 173, "_sysctl": 156, "sysfs": 139, "ustat": 136}

call("iopl 0", NUMBER["iopl"], 0)
call("iopl 3", NUMBER["iopl"], 3)
call("ioperm off", NUMBER["ioperm"], 0x80, 1, 0)
call("ioperm on", NUMBER["ioperm"], 0x80, 1, 1)
segment = (ctypes.c_uint32 * 4)(0, 0, 0xFFFF, 0b1010001)  # entry 0, base 0, 32-bit, in pages, usable
call("modify_ldt write", NUMBER["modify_ldt"], 1, segment, 16)
call("modify_ldt read", NUMBER["modify_ldt"], 0, ctypes.create_string_buffer(64), 64)
call("sysfs", NUMBER["sysfs"], 3)
call("ustat", NUMBER["ustat"], 0, ctypes.create_string_buffer(64))
call("_sysctl", NUMBER["_sysctl"], None)
print("CONTAINED")

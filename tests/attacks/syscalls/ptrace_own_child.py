# claim: no process can be traced, not even one's own child
# weaken: seccomp
import ctypes
import errno
import os
import signal

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


PTRACE = 101
TRACEME, PEEKDATA, ATTACH, SEIZE = 0, 2, 16, 0x4206
buffer = ctypes.create_string_buffer(b"8 bytes!")

pid = os.fork()
if pid == 0:
    call("TRACEME", PTRACE, TRACEME, 0, None, None)
    signal.pause()
    os._exit(0)
word = ctypes.c_long()
call("SEIZE a child", PTRACE, SEIZE, pid, None, None)
call("ATTACH to a child", PTRACE, ATTACH, pid, None, None)
call("PEEKDATA of a child", PTRACE, PEEKDATA, pid, buffer, ctypes.byref(word))
call("ATTACH to init", PTRACE, ATTACH, 1, None, None)
os.kill(pid, signal.SIGKILL)
print("CONTAINED")

# claim: modules, kexec, reboot, swap and accounting are out of reach, also from namespaces of one's own
# weaken: seccomp,forbid_namespaces
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
    "init_module": 175, "finit_module": 313, "delete_module": 176, "kexec_load": 246, "kexec_file_load": 320,
    "reboot": 169, "swapon": 167, "swapoff": 168, "acct": 163, "vhangup": 153, "unshare": 272, "uselib": 134,
}
MAGIC, MAGIC2 = 0xFEE1DEAD, 672274793
CAD_OFF = 0  # Ctrl-Alt-Del stops the machine no longer: the one reboot command that harms nobody
NEWUSER_NEWPID = 0x30000000

call("init_module", NUMBER["init_module"], b"not a module", 12, b"")
call("finit_module", NUMBER["finit_module"], 0, b"", 0)
call("delete_module", NUMBER["delete_module"], b"no_such_module", os.O_NONBLOCK)
call("kexec_load", NUMBER["kexec_load"], 0, 0, None, 0)
call("kexec_file_load", NUMBER["kexec_file_load"], 0, 0, 0, None, 8)
call("swapon", NUMBER["swapon"], b"/tmp/no-such-file", 0)
call("swapoff", NUMBER["swapoff"], b"/tmp/no-such-file")
call("acct", NUMBER["acct"], b"/tmp/no-such-file")
call("uselib", NUMBER["uselib"], b"/tmp/no-such-file")
call("vhangup", NUMBER["vhangup"])
call("reboot", NUMBER["reboot"], MAGIC, MAGIC2, CAD_OFF, None)
if os.fork() == 0:
    if call("unshare", NUMBER["unshare"], NEWUSER_NEWPID) == 0:
        if os.fork() == 0:
            call("reboot as init of a pid namespace", NUMBER["reboot"], MAGIC, MAGIC2, CAD_OFF, None)
            os._exit(0)
        os.wait()
    os._exit(0)
os.wait()
print("CONTAINED")

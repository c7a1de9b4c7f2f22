# claim: no user namespace, and so no capabilities, can be had by any call
# weaken: seccomp,forbid_namespaces
import ctypes
import errno
import os

UNSHARE, CLONE, CLONE3 = 272, 56, 435
NEWUSER, SIGCHLD = 0x10000000, 17
libc = ctypes.CDLL(None, use_errno=True)


def capabilities():
    status = open("/proc/self/status").read()
    return int(status.split("CapEff:\t")[1].split()[0], 16)


def by_unshare():
    if libc.syscall(UNSHARE, NEWUSER) == 0 and capabilities():
        print("ESCAPED: unshare gave capabilities", hex(capabilities()), flush=True)
    else:
        print("refused: unshare", errno.errorcode.get(ctypes.get_errno()), flush=True)


def by_clone():
    pid = libc.syscall(CLONE, NEWUSER | SIGCHLD, None, None, None, None)
    if pid == 0:
        print("ESCAPED: clone gave capabilities", hex(capabilities()), flush=True)
        os._exit(0)
    print("clone gave", pid, errno.errorcode.get(ctypes.get_errno()), flush=True)
    if pid > 0:
        os.waitpid(pid, 0)


def by_clone3():
    pid = libc.syscall(CLONE3, (ctypes.c_uint64 * 11)(NEWUSER, 0, 0, 0, SIGCHLD), 88)
    if pid == 0:
        print("ESCAPED: clone3 gave capabilities", hex(capabilities()), flush=True)
        os._exit(0)
    print("clone3 gave", pid, errno.errorcode.get(ctypes.get_errno()), flush=True)
    if pid > 0:
        os.waitpid(pid, 0)


for way in (by_unshare, by_clone, by_clone3):
    if os.fork() == 0:
        way()
        os._exit(0)
    os.wait()
print("CONTAINED")

# claim: the host's name is neither told nor changed
# weaken: seccomp,forbid_namespaces
import ctypes
import errno
import os
import socket

SETHOSTNAME, SETDOMAINNAME, UNSHARE = 170, 171, 272
NEWUSER_NEWUTS = 0x14000000
libc = ctypes.CDLL(None, use_errno=True)


own = socket.gethostname().encode()


def attack(where):
    for name, number in (("sethostname", SETHOSTNAME), ("setdomainname", SETDOMAINNAME)):
        ctypes.set_errno(0)
        # Its own name once more: nothing changes should this not be a sandbox.
        result = libc.syscall(number, own, len(own))
        why = errno.errorcode.get(ctypes.get_errno())
        print("ESCAPED:" if result == 0 else "refused:", name, where, why, flush=True)


if socket.gethostname() != "redoma" or os.uname().nodename != "redoma":
    print("ESCAPED: the host's name is", socket.gethostname())
attack("here")
for path in ("/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname"):
    try:
        with open(path, "w") as file:
            file.write(own.decode())
        print("ESCAPED: wrote", path)
    except OSError as error:
        print("refused:", path, error.strerror)
if os.fork() == 0:
    print("unshare gave", libc.syscall(UNSHARE, NEWUSER_NEWUTS), flush=True)
    attack("in a namespace")
    os._exit(0)
os.wait()
print("CONTAINED")

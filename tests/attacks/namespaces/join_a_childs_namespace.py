# claim: setns leads nowhere: not into a child's namespaces, not into init's, not back into one's own with more rights
# weaken: seccomp,forbid_namespaces
import ctypes
import errno
import os
import signal

UNSHARE, SETNS = 272, 308
NEWUSER, PR_SET_DUMPABLE = 0x10000000, 4
libc = ctypes.CDLL(None, use_errno=True)


def join(name, descriptor, kind):
    ctypes.set_errno(0)
    if libc.syscall(SETNS, descriptor, kind) == 0:
        print("ESCAPED: joined", name)
    else:
        print("refused:", name, errno.errorcode[ctypes.get_errno()])


ready, tell = os.pipe()
child = os.fork()
if child == 0:
    print("unshare gave", libc.syscall(UNSHARE, NEWUSER), flush=True)
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    os.write(tell, b"x")
    signal.pause()
os.read(ready, 1)
for name in sorted(os.listdir("/proc/self/ns")):
    join(f"own {name}", os.open(f"/proc/self/ns/{name}", os.O_RDONLY), 0)
for pid, who in ((1, "init"), (child, "a child")):
    join(f"the user namespace of {who}", os.pidfd_open(pid), NEWUSER)
    try:
        join(f"the namespace file of {who}", os.open(f"/proc/{pid}/ns/user", os.O_RDONLY), 0)
    except OSError as error:
        print("refused:", f"/proc/{pid}/ns/user", error.strerror)
os.kill(child, signal.SIGKILL)
print("CONTAINED")

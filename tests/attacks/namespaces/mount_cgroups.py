# claim: the cgroup file systems are not there and can't be mounted, so that no limit can be lifted from inside
# weaken: seccomp,forbid_namespaces,landlock
import ctypes
import errno
import os

UNSHARE, MOUNT = 272, 165
NEWUSER, NEWNS, NEWCGROUP = 0x10000000, 0x20000, 0x2000000
libc = ctypes.CDLL(None, use_errno=True)

for path in ("/sys/fs/cgroup", "/sys", "/cgroup", "/dev/cgroup"):
    print("ESCAPED: there is" if os.path.exists(path) else "absent:", path)
place = b"/tmp/cgroup"
os.mkdir(place)
for flags in (0, NEWUSER | NEWNS, NEWUSER | NEWNS | NEWCGROUP):
    if os.fork() == 0:
        if flags:
            print("unshare gave", libc.syscall(UNSHARE, flags), flush=True)
        for kind, options in ((b"cgroup2", None), (b"cgroup", b"memory"), (b"cgroup", b"pids"), (b"sysfs", None)):
            ctypes.set_errno(0)
            result = libc.syscall(ctypes.c_long(MOUNT), b"none", place, kind, ctypes.c_long(0), options)
            why = errno.errorcode.get(ctypes.get_errno())
            print("refused:" if result else "ESCAPED: mounted", kind, options, why, flush=True)
            if result == 0:
                print("found", sorted(os.listdir(place))[:5], flush=True)
        os._exit(0)
    os.wait()
print("CONTAINED")

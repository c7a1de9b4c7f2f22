# claim: a file can't be given capabilities, nor does one that has them hand them on
# weaken: seccomp,forbid_namespaces,landlock
import ctypes
import os
import shutil
import struct

UNSHARE, NEWUSER = 272, 0x10000000
libc = ctypes.CDLL(None, use_errno=True)
# Version 2 with the effective flag: cap_setuid, cap_sys_admin and cap_sys_ptrace, permitted.
VALUE = struct.pack("<5I", 0x02000001, 1 << 7 | 1 << 19 | 1 << 21, 0, 0, 0)


def attack(name):
    for folder in ("/mnt/data", "/tmp", "/dev/shm", "/home/sandbox"):
        path = f"{folder}/{name}"
        shutil.copy("/usr/bin/cat", path)
        try:
            os.setxattr(path, "security.capability", VALUE)
            print("ESCAPED: a file with capabilities in", folder, flush=True)
        except OSError as error:
            print("refused:", path, error.strerror, flush=True)


attack("direct")
if os.fork() == 0:
    if libc.syscall(UNSHARE, NEWUSER) == 0:
        for file, text in (("setgroups", "deny"), ("uid_map", "0 1000 1"), ("gid_map", "0 1000 1")):
            try:
                with open(f"/proc/self/{file}", "w") as target:
                    target.write(text)
            except OSError as error:
                print("refused:", file, error.strerror, flush=True)
    attack("nested")
    os._exit(0)
os.wait()
print("CONTAINED")

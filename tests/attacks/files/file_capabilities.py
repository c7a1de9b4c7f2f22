# claim: a file can't be given capabilities
# weaken: seccomp,forbid_namespaces,landlock
import ctypes, os, shutil, struct
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"mount": 165, "unshare": 272}
NEWUSER_NEWNS = 0x10020000
os.mkdir("here")

def attempt(path):
    shutil.copy("/usr/bin/env", path)
    everything = (0xFFFFFFFF, 0, 0x1FF, 0)
    for value in (struct.pack("<5I", 0x02000001, *everything), struct.pack("<6I", 0x03000001, *everything, 1000)):
        try:
            os.setxattr(path, "security.capability", value)
            print("ESCAPED:", path, "has capabilities")
        except OSError as error:
            print("refused:", path, error.strerror)

attempt("env")
# In a user namespace of one's own, on a file system of its own, it would be allowed.
if libc.syscall(NUMBERS["unshare"], NEWUSER_NEWNS) == 0:
    for name, content in (("setgroups", "deny"), ("uid_map", "0 1000 1"), ("gid_map", "0 1000 1")):
        open("/proc/self/" + name, "w").write(content)
    libc.syscall(NUMBERS["mount"], b"tmpfs", b"/mnt/data/here", b"tmpfs", 0, None)
    attempt("here/env")
else:
    print("refused: unshare", os.strerror(ctypes.get_errno()))
print("CONTAINED")

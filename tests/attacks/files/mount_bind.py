# claim: no bind mount can be made, to bring a host folder in or to lift a file over another
# weaken: canary,seccomp,forbid_namespaces,landlock
import ctypes, os, sys
canary = sys.argv[1].encode()
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"mount": 165, "unshare": 272}
NEWUSER_NEWNS, MS_BIND, MS_MOVE, MS_REC = 0x10020000, 4096, 8192, 16384
# The way to the right to mount: a user namespace of one's own.
print("unshare:", libc.syscall(NUMBERS["unshare"], NEWUSER_NEWNS), os.strerror(ctypes.get_errno()))
os.mkdir("here")
open("passwd", "w").write("root::0:0::/:/bin/sh\n")
for source, target, flags in (
    (canary, b"/mnt/data/here", MS_BIND | MS_REC),
    (b"/usr", b"/mnt/data/here", MS_BIND | MS_REC),
    (b"/mnt/data/passwd", b"/etc/passwd", MS_BIND),
    (b"/mnt/data", b"/etc", MS_MOVE),
):
    if libc.syscall(NUMBERS["mount"], source, target, None, flags, None) == 0:
        print("ESCAPED: bound", source, "at", target)
        if source == canary:
            print(open("here/secret.txt").read())
    else:
        print("refused:", source, target, os.strerror(ctypes.get_errno()))
print("CONTAINED")

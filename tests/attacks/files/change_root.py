# claim: the root can't be changed: neither by chroot, with its well-known way out, nor by pivot_root
# weaken: seccomp,forbid_namespaces
import ctypes, os, sys
canary = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"pivot_root": 155, "chroot": 161, "unshare": 272}
NEWUSER_NEWNS = 0x10020000
print("unshare:", libc.syscall(NUMBERS["unshare"], NEWUSER_NEWNS), os.strerror(ctypes.get_errno()))
os.makedirs("jail/old")
if libc.syscall(NUMBERS["pivot_root"], b"/mnt/data", b"/mnt/data/jail/old") == 0:
    print("ESCAPED: pivot_root")
else:
    print("refused: pivot_root", os.strerror(ctypes.get_errno()))
if libc.syscall(NUMBERS["chroot"], b"/mnt/data/jail") == 0:
    # The working folder is outside of the new root now: nothing stops `..` there but the end of the mounts.
    for _ in range(64):
        os.chdir("..")
    libc.syscall(NUMBERS["chroot"], b".")
    print("ESCAPED: chroot, and out of it again", os.path.exists(canary))
else:
    print("refused: chroot", os.strerror(ctypes.get_errno()))
print("CONTAINED")

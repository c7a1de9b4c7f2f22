# claim: no second /proc can be mounted, one without covers
# weaken: mask_proc,seccomp,forbid_namespaces,landlock
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"mount": 165, "umount2": 166, "unshare": 272}
NEWUSER_NEWNS_NEWPID = 0x30020000
print("unshare:", libc.syscall(NUMBERS["unshare"], NEWUSER_NEWNS_NEWPID), os.strerror(ctypes.get_errno()), flush=True)
os.mkdir("proc")
if os.fork() == 0:
    for data in (None, b"subset=pid", b"hidepid=0"):
        if libc.syscall(NUMBERS["mount"], b"proc", b"/mnt/data/proc", b"proc", 0, data) == 0:
            print("ESCAPED: a /proc of one's own with", len(os.listdir("proc")), "entries", flush=True)
            libc.syscall(NUMBERS["umount2"], b"/mnt/data/proc", 0)
        else:
            print("refused:", data, os.strerror(ctypes.get_errno()), flush=True)
    os._exit(0)
os.wait()
print("CONTAINED")

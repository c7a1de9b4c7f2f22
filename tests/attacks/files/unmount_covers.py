# claim: what covers parts of /proc and /usr can't be taken away
# weaken: seccomp,capabilities,landlock
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"umount2": 166}
MNT_DETACH = 2
covers = [line.split()[4] for line in open("/proc/self/mountinfo")]
for path in covers:
    if not path.startswith(("/proc/", "/usr/")):
        continue
    if libc.syscall(NUMBERS["umount2"], path.encode(), MNT_DETACH) == 0:
        print("ESCAPED: uncovered", path)
    elif path == "/proc/sys":
        print("refused:", path, os.strerror(ctypes.get_errno()))
for path in ("/proc/cmdline", "/proc/sys/kernel/random/boot_id"):
    try:
        content = open(path).read()
        if content:
            print("ESCAPED:", path, content)
    except OSError as error:
        print("refused:", path, error.strerror)
print("CONTAINED")

# claim: host files can't be renamed, exchanged, or moved into the workspace
# weaken: canary,landlock,read_only
import ctypes, os, sys
canary = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"renameat2": 316}
AT_FDCWD, NOREPLACE, EXCHANGE, WHITEOUT = -100, 1, 2, 4
open("mine", "w").close()
pairs = [
    (canary + "/victim.txt", "/mnt/data/moved"),
    ("/mnt/data/mine", canary + "/victim.txt"),
    (canary + "/victim.txt", canary + "/renamed.txt"),
    (canary, "/tmp/canary"),
]
for source, target in pairs:
    for flags in (0, NOREPLACE, EXCHANGE, WHITEOUT):
        if libc.syscall(NUMBERS["renameat2"], AT_FDCWD, source.encode(), AT_FDCWD, target.encode(), flags) == 0:
            print("ESCAPED: renamed", source, "to", target, "with flags", flags)
        else:
            print("refused:", source, target, flags, os.strerror(ctypes.get_errno()))
print("CONTAINED")

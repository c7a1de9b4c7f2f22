# claim: the root can't be made writable again
# weaken: seccomp,capabilities,landlock
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"mount": 165}
MS_REMOUNT, MS_BIND = 32, 4096
for flags in (MS_REMOUNT, MS_REMOUNT | MS_BIND):
    result = libc.syscall(NUMBERS["mount"], None, b"/", None, flags, None)
    print("remount:", result, os.strerror(ctypes.get_errno()))
try:
    os.mkdir("/redoma-attack")
    print("ESCAPED: made a folder in the root")
except OSError as error:
    print("refused:", error.strerror)
print("CONTAINED")

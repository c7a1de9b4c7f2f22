# claim: pairs of sockets are plain local ones
# weaken: seccomp
import ctypes
import errno

SOCKETPAIR = 53
libc = ctypes.CDLL(None, use_errno=True)
pair = (ctypes.c_int * 2)()
looked_at = set()
for family in range(64):
    for kind in (1, 2, 3, 4, 5, 10):
        if family == 1 and kind in (1, 2, 5):
            continue
        ctypes.set_errno(0)
        if libc.syscall(SOCKETPAIR, family, kind, 0, pair) == 0:
            print("ESCAPED: a pair of family", family, "and type", kind)
        elif ctypes.get_errno() != errno.EPERM:
            looked_at.add(family)
if looked_at:
    print("ESCAPED: the kernel itself was asked for the families", sorted(looked_at))
print("CONTAINED")

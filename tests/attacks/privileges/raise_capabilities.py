# claim: capabilities can't be raised by any of the ways there are, because the rules that could are locked
# weaken: capabilities
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
PR_GET_SECUREBITS, PR_SET_SECUREBITS, PR_SET_KEEPCAPS, PR_CAP_AMBIENT, PR_CAPBSET_READ = 27, 28, 8, 47, 23
AMBIENT_RAISE, CAP_SYS_ADMIN, CAP_LAST = 2, 21, 40
# NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE, each with its lock, and the lock of KEEP_CAPS.
LOCKED = 0b11_10_11_11


def attempt(name, result, is_success):
    print("ESCAPED:" if is_success else "refused:", name, result, os.strerror(ctypes.get_errno()))


header = (ctypes.c_uint32 * 2)(0x20080522, 0)
wanted = (ctypes.c_uint32 * 6)(*[1 << CAP_SYS_ADMIN] * 3)
result = libc.capset(header, wanted)
attempt("capset", result, result == 0)
wanted = (ctypes.c_uint32 * 6)(0, 0, 1 << CAP_SYS_ADMIN)
result = libc.capset(header, wanted)
attempt("capset inheritable only", result, result == 0)
result = libc.prctl(PR_CAP_AMBIENT, AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0)
attempt("ambient", result, result == 0)
result = libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
attempt("keepcaps", result, result == 0)
result = libc.prctl(PR_SET_SECUREBITS, 0, 0, 0, 0)
attempt("securebits", result, result == 0)
bits = libc.prctl(PR_GET_SECUREBITS, 0, 0, 0, 0)
attempt("securebits unlocked", bin(bits), bits & LOCKED != LOCKED)
bounding = [number for number in range(CAP_LAST + 1) if libc.prctl(PR_CAPBSET_READ, number, 0, 0, 0) == 1]
attempt("bounding set", bounding, bool(bounding))
print("CONTAINED")

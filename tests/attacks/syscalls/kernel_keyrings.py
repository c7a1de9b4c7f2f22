# claim: the kernel's keyrings, which outlive processes and cross namespaces, are closed
# weaken: seccomp
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(name, number, *args):
    """A raw system call; refused means EPERM, or ENOSYS as from a kernel without it."""
    ctypes.set_errno(0)
    result = libc.syscall(*(ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in (number, *args)))
    why = errno.errorcode.get(ctypes.get_errno(), "")
    if result == -1 and why in ("EPERM", "ENOSYS"):
        print("refused:", name, why)
    else:
        print("ESCAPED:", name, "gave", result, why, flush=True)
    return result


ADD_KEY, REQUEST_KEY, KEYCTL = 248, 249, 250
PROCESS_RING, USER_RING, SESSION_RING = -2, -4, -3
GET_KEYRING_ID, JOIN_SESSION = 0, 1

for ring in (PROCESS_RING, USER_RING, SESSION_RING):
    call(f"add_key to {ring}", ADD_KEY, b"user", b"redoma-attack", b"message", 7, ring)
    call(f"keyctl GET_KEYRING_ID {ring}", KEYCTL, GET_KEYRING_ID, ring, 1)
call("request_key", REQUEST_KEY, b"user", b"redoma-attack", None, PROCESS_RING)
call("keyctl JOIN_SESSION", KEYCTL, JOIN_SESSION, None)
print("CONTAINED")

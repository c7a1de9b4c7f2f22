# claim: no BPF program or map can be made, and the call itself is closed
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


BPF = 321
COMMANDS = {"MAP_CREATE": 0, "PROG_LOAD": 5, "OBJ_GET": 7, "PROG_GET_NEXT_ID": 11, "BTF_LOAD": 18, "TOKEN_CREATE": 36}
path = ctypes.create_string_buffer(b"/tmp/no-such-object")

for name, command in COMMANDS.items():
    attributes = (ctypes.c_uint64 * 18)()
    attributes[0] = ctypes.addressof(path) if name == "OBJ_GET" else 1 | 4 << 32
    attributes[1] = 4 | 1 << 32
    call(name, BPF, command, attributes, 144)
print("CONTAINED")

# claim: io_uring, which makes system calls past the filter, can't be set up
# weaken: seccomp
import ctypes
import errno
import mmap
import struct

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


SETUP, ENTER, REGISTER = 425, 426, 427
OP_SOCKET, AF_NETLINK, SOCK_RAW = 45, 16, 3


def netlink_socket_past_the_filter():
    parameters = (ctypes.c_uint32 * 30)()
    ring = call("io_uring_setup", SETUP, 4, parameters)
    if ring < 0:
        return
    # Rings in one mapping, entries in another: see io_uring(7). Offsets follow 10 words of parameters.
    sq_tail, sq_array = parameters[11], parameters[16]
    cqes = parameters[25]
    rings = mmap.mmap(ring, 4096)
    entries = mmap.mmap(ring, 4096, offset=0x10000000)
    entries[:64] = struct.pack("<BBHiQQIIQ24x", OP_SOCKET, 0, 0, AF_NETLINK, SOCK_RAW, 0, 0, 0, 7)
    rings[sq_array:sq_array + 4] = struct.pack("<I", 0)
    rings[sq_tail:sq_tail + 4] = struct.pack("<I", 1)
    call("io_uring_enter", ENTER, ring, 1, 1, 1, None, 0)
    result = struct.unpack_from("<i", rings, cqes + 8)[0]
    print("a netlink socket by io_uring:", result)


netlink_socket_past_the_filter()
call("io_uring_enter", ENTER, 0, 1, 0, 0, None, 0)
call("io_uring_register", REGISTER, -1, 0, None, 0)
print("CONTAINED")

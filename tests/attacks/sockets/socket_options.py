# claim: no option of a socket can be set but those that ordinary programs use; none of these takes host memory that no cgroup counts
# weaken: seccomp
import ctypes
import socket
import struct

SOL_IP, SOL_SOCKET, SOL_TCP, SOL_UDP, SOL_IPV6 = 0, 1, 6, 17, 41
# A filter that lets everything pass, as long as can be: the host compiles each into its own memory, of which there is 1/1024 of all.
LENGTH = 2000
code = b"".join(struct.pack("HBBI", 0x00, 0, 0, 1) for _ in range(LENGTH - 1)) + struct.pack("HBBI", 0x06, 0, 0, 0xFFFFFFFF)
instructions = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", LENGTH, ctypes.addressof(instructions))
group = struct.pack("4s4si", socket.inet_aton("224.1.1.1"), socket.inet_aton("127.0.0.1"), 1)
flow = struct.pack("16sIBBHHHI", socket.inet_pton(socket.AF_INET6, "::1"), 0, 0, 255, 1, 6, 0, 0)
one = struct.pack("i", 1)

TCP = (socket.AF_INET, socket.SOCK_STREAM)
UDP = (socket.AF_INET, socket.SOCK_DGRAM)
UDP6 = (socket.AF_INET6, socket.SOCK_DGRAM)
UNIX = (socket.AF_UNIX, socket.SOCK_DGRAM)
ATTEMPTS = {
    "SO_ATTACH_FILTER": (UDP, SOL_SOCKET, 26, program),
    "SO_ATTACH_FILTER on a local socket": (UNIX, SOL_SOCKET, 26, program),
    "SO_ATTACH_REUSEPORT_CBPF": (UDP, SOL_SOCKET, 51, program),
    "SO_LOCK_FILTER": (UDP, SOL_SOCKET, 44, one),
    "SO_TIMESTAMP": (UDP, SOL_SOCKET, 29, one),
    "SO_TIMESTAMPING": (UDP, SOL_SOCKET, 37, struct.pack("i", 8)),
    "SO_ZEROCOPY": (UDP, SOL_SOCKET, 60, one),
    "SO_TXTIME": (UDP, SOL_SOCKET, 61, struct.pack("ii", 1, 0)),
    "TCP_CONGESTION": (TCP, SOL_TCP, 13, b"reno"),
    "TCP_MD5SIG": (TCP, SOL_TCP, 14, struct.pack("HH4s120xBBHi80s", 2, 0, b"\x7f\0\0\1", 0, 0, 4, 0, b"key")),
    "UDP_ENCAP": (UDP, SOL_UDP, 100, struct.pack("i", 2)),
    "IP_ADD_MEMBERSHIP": (UDP, SOL_IP, 35, group),
    "IPV6_ADD_MEMBERSHIP": (UDP6, SOL_IPV6, 20, struct.pack("16si", socket.inet_pton(socket.AF_INET6, "ff02::7"), 1)),
    "IPV6_FLOWLABEL_MGR": (UDP6, SOL_IPV6, 32, flow),
}
for name, (kind, level, option, value) in ATTEMPTS.items():
    plug = socket.socket(*kind)
    try:
        plug.setsockopt(level, option, value)
        print("ESCAPED:", name, flush=True)
    except OSError as error:
        print("refused:", name, error.strerror, flush=True)
print("CONTAINED")

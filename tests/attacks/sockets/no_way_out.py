# claim: no address outside can be reached: the kernel knows no way there
# weaken: net_namespace
import errno
import socket

# Connecting a UDP socket asks the kernel for a route and sends nothing.
OUTSIDE = [
    (socket.AF_INET, "8.8.8.8"), (socket.AF_INET, "169.254.169.254"), (socket.AF_INET, "10.0.0.1"),
    (socket.AF_INET, "172.17.0.1"), (socket.AF_INET, "192.168.1.1"), (socket.AF_INET, "224.0.0.251"),
    (socket.AF_INET, "255.255.255.255"), (socket.AF_INET6, "2001:4860:4860::8888"), (socket.AF_INET6, "fe80::1"),
    (socket.AF_INET6, "::ffff:8.8.8.8"),
]
for family, address in OUTSIDE:
    with socket.socket(family, socket.SOCK_DGRAM) as plug:
        try:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            plug.connect((address, 53))
            print("ESCAPED: a way to", address, "from", plug.getsockname()[0])
        except OSError as error:
            print("refused:", address, errno.errorcode[error.errno])
print("CONTAINED")

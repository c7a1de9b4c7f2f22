# claim: internet sockets speak TCP and UDP only: no ICMP, no raw packets, none of the rarer protocols
# weaken: seccomp
import socket

TCP, UDP, MPTCP = 6, 17, 262
refused = 0
for family in (socket.AF_INET, socket.AF_INET6):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        for protocol in (*range(1, 256), MPTCP):
            if kind != socket.SOCK_RAW and protocol in (TCP, UDP):
                continue
            try:
                socket.socket(family, kind, protocol).close()
                print("ESCAPED: a socket of", family.name, kind.name, "with protocol", protocol)
            except PermissionError:
                refused += 1
            except OSError:
                pass
print("refused:", refused)
print("CONTAINED")

# claim: errors that wait to be read from a socket can't pile up: they take 240 KB for each socket, which no memory limit counts
# weaken: seccomp
import socket

IP_RECVERR, IPV6_RECVERR = 11, 25
for family, level, option, place in [
    (socket.AF_INET, socket.IPPROTO_IP, IP_RECVERR, "127.0.0.1"),
    (socket.AF_INET6, socket.IPPROTO_IPV6, IPV6_RECVERR, "::1"),
]:
    one = socket.socket(family, socket.SOCK_DGRAM)
    try:
        one.setsockopt(level, option, 1)
    except OSError as error:
        print("refused:", error)
        continue
    # A port that is closed: the kernel answers each message with an error.
    waiting = 0
    one.connect((place, 9))
    for _ in range(50):
        try:
            one.send(b"x")
        except OSError:
            pass
    try:
        while one.recvmsg(1, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT):
            waiting += 1
    except OSError:
        pass
    if waiting:
        print("ESCAPED:", waiting, "errors waited on one socket")
print("CONTAINED")

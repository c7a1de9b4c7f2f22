# claim: privileged socket options (firewall tables, marks, foreign addresses) are refused, also in a network of one's own
# weaken: seccomp,forbid_namespaces
import ctypes
import os
import socket

UNSHARE, NEWUSER_NEWNET = 272, 0x50000000
libc = ctypes.CDLL(None, use_errno=True)
SOL_IP, SOL_SOCKET, SOL_TCP = 0, 1, 6
IPT_SO_GET_INFO, IP_TRANSPARENT, SO_MARK, SO_RCVBUFFORCE, TCP_REPAIR = 64, 19, 36, 33, 19


def attack(where):
    plug = socket.socket()
    attempts = {
        "packet filter": lambda: plug.getsockopt(SOL_IP, IPT_SO_GET_INFO, 84),
        "transparent": lambda: plug.setsockopt(SOL_IP, IP_TRANSPARENT, 1),
        "mark": lambda: plug.setsockopt(SOL_SOCKET, SO_MARK, 7),
        "buffer beyond the limit": lambda: plug.setsockopt(SOL_SOCKET, SO_RCVBUFFORCE, 1 << 20),
        "repair": lambda: plug.setsockopt(SOL_TCP, TCP_REPAIR, 1),
        "port 80": lambda: plug.bind(("127.0.0.1", 80)),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
            print("ESCAPED:", name, where, flush=True)
        except OSError as error:
            print("refused:", name, where, error.strerror, flush=True)


attack("here")
if os.fork() == 0:
    print("unshare gave", libc.syscall(UNSHARE, NEWUSER_NEWNET), flush=True)
    attack("in a network of its own")
    os._exit(0)
os.wait()
print("CONTAINED")

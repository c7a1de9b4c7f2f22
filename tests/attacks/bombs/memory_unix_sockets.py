# claim: what waits in unix sockets counts against the memory limit
# weaken: limits
# flags: --memory 32MiB
# limit: memory
import socket

held, total = [], 0
while total < 64 << 20 and len(held) < 450:
    pair = socket.socketpair()
    held.append(pair)
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    pair[0].setblocking(False)
    try:
        while True:
            total += pair[0].send(b"x" * 65536)
    except BlockingIOError:
        pass
print("ESCAPED:", total >> 20, "MiB in sockets, of 32 MiB")
print("CONTAINED")

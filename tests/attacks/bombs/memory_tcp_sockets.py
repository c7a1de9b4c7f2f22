# claim: what waits in TCP connections over loopback is bounded by a fraction of the memory limit
# weaken: limits
# flags: --memory 32MiB
# or_limit: memory
import socket

MOST = 48 << 20
held, total = [], 0
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
listener.bind(("127.0.0.1", 0))
listener.listen()
try:
    while total < MOST and len(held) < 200:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        client.settimeout(1)
        client.connect(listener.getsockname())
        held.append((client, listener.accept()))
        client.setblocking(False)
        try:
            while total < MOST:
                total += client.send(b"x" * 65536)
        except BlockingIOError:
            pass
except OSError as error:
    print("refused:", error)
print("buffered:", total >> 20, "MiB")
if total > 16 << 20:
    print("ESCAPED:", total >> 20, "MiB in TCP buffers, under a memory limit of 32 MiB")
print("CONTAINED")

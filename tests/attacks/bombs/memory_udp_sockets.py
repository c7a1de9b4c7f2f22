# claim: what waits in UDP sockets on loopback is bounded by a fraction of the memory limit
# weaken: limits
# flags: --memory 32MiB
# or_limit: memory
import socket

sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receivers = []
for _ in range(12):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    receiver.bind(("127.0.0.1", 0))
    receiver.setblocking(False)
    receivers.append(receiver)
    for _ in range(130):
        sender.sendto(b"x" * 32000, receiver.getsockname())
total = 0
for receiver in receivers:
    try:
        while True:
            total += len(receiver.recv(65536))
    except BlockingIOError:
        pass
print("buffered:", total >> 20, "MiB")
if total > 16 << 20:
    print("ESCAPED:", total >> 20, "MiB in UDP buffers, under a memory limit of 32 MiB")
print("CONTAINED")

# claim: TCP connections that wait to be accepted, which no memory limit counts, are bounded for the sandbox as a whole
# weaken: limits
# flags: --nofile 64
# limit: nofile
import socket
import time

# Closed at once by the one who connects: no descriptor is left, but the other end waits in the kernel with 4 KB.
listeners = [socket.create_server(("127.0.0.1", 0), backlog=4096) for _ in range(4)]
for number in range(1200):
    with socket.create_connection(listeners[number % 4].getsockname(), timeout=5):
        pass
time.sleep(1)
print("ESCAPED: 1,200 connections wait")
print("CONTAINED")

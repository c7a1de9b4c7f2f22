# claim: TCP connections that are closed and linger, which no memory limit counts, are bounded
# weaken: limits
# flags: --nofile 32
# limit: nofile
import socket
import time

listener = socket.create_server(("127.0.0.1", 0), backlog=8)
for number in range(3000):
    ours = socket.create_connection(listener.getsockname(), timeout=5)
    theirs, _ = listener.accept()
    ours.close()
    theirs.close()
time.sleep(1)
print("ESCAPED: 3,000 closed connections linger")
print("CONTAINED")

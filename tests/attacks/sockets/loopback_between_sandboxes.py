# claim: two sandboxes do not share a loopback: what one listens at the other can't reach
# weaken: net_namespace
# twice: yes
import socket
import sys
import time

key, role = sys.argv[2:4]
# Below the ports that a connection gets for its own end: one that tries often enough would meet itself there.
port = 20000 + sum(key.encode()) * 7919 % 10000
end = time.monotonic() + 2
greeting = f"redoma attack {key}".encode()
if role == "a":
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
        server.settimeout(2)
        try:
            peer, _ = server.accept()
            peer.sendall(greeting)
            print("ESCAPED: the other sandbox came")
        except TimeoutError:
            print("nobody came")
else:
    while time.monotonic() < end:
        with socket.socket() as client:
            client.settimeout(1)
            try:
                client.connect(("127.0.0.1", port))
                if client.recv(100) == greeting:
                    print("ESCAPED: the other sandbox answered")
                    break
            except OSError as error:
                refusal = error
        time.sleep(0.02)
    else:
        print("refused:", refusal)
print("CONTAINED")

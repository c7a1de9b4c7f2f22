# claim: two sandboxes can't meet at an abstract socket name
# weaken: net_namespace,landlock
# twice: yes
import socket
import sys
import time

key, role = sys.argv[2:4]
name = f"\0redoma-attack-{key}"
end = time.monotonic() + 2
if role == "a":
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        server.settimeout(2)
        try:
            peer, _ = server.accept()
            print("ESCAPED: the other sandbox says", peer.recv(100))
        except TimeoutError:
            print("nobody came")
else:
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(name)
                client.sendall(b"hello from b")
                print("ESCAPED: reached the other sandbox")
                break
            except OSError as error:
                refusal = error
        time.sleep(0.02)
    else:
        print("refused:", refusal)
print("CONTAINED")

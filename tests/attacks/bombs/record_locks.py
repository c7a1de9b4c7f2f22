# claim: a sandbox holds no more record locks than it may: they take memory of the host that no cgroup counts
# weaken: locks
# limit: nofile
import fcntl
import os
import struct
import time

FILES, EACH = 300, 300
held = []
for number in range(FILES):
    file = os.open(f"/tmp/{number}", os.O_RDWR | os.O_CREAT)
    held.append(file)
    for byte in range(EACH):
        # Neighbours would become one lock.
        fcntl.fcntl(file, fcntl.F_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, byte * 2, 1, 0))
print("holds", FILES * EACH, flush=True)
end = time.process_time() + 1
while time.process_time() < end:
    pass
print("ESCAPED: holds", FILES * EACH, "locks and goes on")
print("CONTAINED")

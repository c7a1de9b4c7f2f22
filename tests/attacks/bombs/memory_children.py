# claim: the memory limit is on all processes together, not on each
# weaken: limits
# flags: --memory 64MiB --pids 32
# hits: memory
import os
import time

COUNT, EACH = 8, 16 << 20

full, tell = os.pipe()
os.set_blocking(full, False)
alive = set()
for _ in range(COUNT):
    child = os.fork()
    if child == 0:
        held = bytearray(b"x" * EACH)
        os.write(tell, b".")
        time.sleep(20)
        os._exit(0)
    alive.add(child)
filled = 0
end = time.monotonic() + 10
while filled < COUNT and len(alive) == COUNT and time.monotonic() < end:
    time.sleep(0.01)
    alive.discard(os.waitpid(-1, os.WNOHANG)[0])
    try:
        filled += len(os.read(full, COUNT))
    except BlockingIOError:
        pass
print("alive:", len(alive), "filled:", filled)
if filled == COUNT:
    print("ESCAPED: 8 children hold 16 MiB each, of 64 in all")
print("CONTAINED")

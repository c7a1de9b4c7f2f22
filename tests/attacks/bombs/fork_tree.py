# claim: processes that fork processes are at most as many as the pids limit says
# weaken: limits
# flags: --pids 32
# hits: pids
import os
import time

DEPTH, WIDTH = 3, 8  # 584 processes at most

births, announce = os.pipe()
os.set_blocking(births, False)


def grow(depth):
    for _ in range(WIDTH if depth else 0):
        try:
            if os.fork() == 0:
                os.write(announce, b".")
                grow(depth - 1)
                time.sleep(10)
                os._exit(0)
        except OSError:
            return


grow(DEPTH)
alive = 1
end = time.monotonic() + 1
while alive <= 32 and time.monotonic() < end:
    time.sleep(0.02)
    try:
        alive += len(os.read(births, 4096))
    except BlockingIOError:
        pass
print("processes:", alive)
if alive > 32:
    print("ESCAPED:", alive, "processes at one time")
print("CONTAINED")

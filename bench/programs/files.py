# Files in the working folder: many small ones and a big one, written and read back.
import os
import time

small, big = b"x" * 2000, b"y" * (1 << 20)
start = time.perf_counter()
for i in range(1000):
    with open(f"small{i}", "wb") as file:
        file.write(small)
for i in range(1000):
    with open(f"small{i}", "rb") as file:
        assert len(file.read()) == 2000
with open("big", "wb") as file:
    for _ in range(32):
        file.write(big)
with open("big", "rb") as file:
    while file.read(1 << 20):
        pass
elapsed = time.perf_counter() - start
for i in range(1000):
    os.unlink(f"small{i}")
os.unlink("big")
print(elapsed)

# claim: no file can claim a size beyond the disk limit, and what files claim together is bounded when they are collected
# flags: --disk 4MiB
# weaken: rlimits
import os
LIMIT = 4 << 20
try:
    with open("giant", "wb") as file:
        os.ftruncate(file.fileno(), 1 << 40)
    print("ESCAPED: a file of a terabyte")
except OSError as error:
    print("refused:", error.strerror)
# Each within the limit, all together a gigabyte.
for index in range(256):
    with open(f"sparse{index}", "wb") as file:
        os.ftruncate(file.fileno(), LIMIT)
print("CONTAINED")

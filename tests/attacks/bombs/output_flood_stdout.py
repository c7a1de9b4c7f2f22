# claim: a program that prints without end is ended, and names the output limit
# weaken: limits
# flags: --output 64KiB
# limit: output
import os

for _ in range(8 << 4):
    os.write(1, b"all work and no play\n" * 3200)
print("CONTAINED")

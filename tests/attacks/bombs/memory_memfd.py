# claim: files without a name (memfd_create), which no disk limit sees, count against the memory limit
# weaken: limits
# flags: --memory 64MiB
# limit: memory
import os

piece = b"x" * (1 << 20)
for number in range(4):
    file = os.memfd_create(f"hidden{number}")
    for _ in range(40):
        os.write(file, piece)
print("ESCAPED: holds 160 MiB of 64 in memfds")
print("CONTAINED")

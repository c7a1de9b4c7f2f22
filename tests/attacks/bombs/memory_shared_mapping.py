# claim: shared anonymous memory counts against the memory limit
# weaken: limits
# flags: --memory 64MiB
# limit: memory
import mmap

SIZE = 160 << 20
shared = mmap.mmap(-1, SIZE, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
for offset in range(0, SIZE, 4096):
    shared[offset] = 1
print("ESCAPED: holds 160 MiB of 64 in a shared mapping")
print("CONTAINED")

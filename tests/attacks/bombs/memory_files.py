# claim: files, which live in memory, count against the memory limit where the disk limit would let them grow further
# weaken: limits
# flags: --memory 64MiB --disk 256MiB
# limit: memory
piece = b"x" * (1 << 20)
with open("/tmp/a", "wb", buffering=0) as tmp, open("/dev/shm/b", "wb", buffering=0) as shm:
    for _ in range(80):
        tmp.write(piece)
        shm.write(piece)
    print("ESCAPED: files of 160 MiB in 64 MiB of memory")
print("CONTAINED")

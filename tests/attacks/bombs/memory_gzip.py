# claim: a small file that unpacks to a large one ends at the memory limit
# weaken: limits
# flags: --memory 64MiB
# limit: memory
import zlib

packer = zlib.compressobj(1)
packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(160)) + packer.flush()
print("packed:", len(packed), flush=True)
unpacked = zlib.decompress(packed)
print("ESCAPED: unpacked", len(unpacked) >> 20, "MiB in 64")
print("CONTAINED")

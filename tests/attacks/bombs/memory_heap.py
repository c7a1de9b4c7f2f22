# claim: a process that allocates ends at the memory limit
# weaken: limits
# flags: --memory 64MiB
# limit: memory
held = []
while len(held) < 40:
    held.append(bytearray(b"x" * (4 << 20)))
print("ESCAPED: holds 160 MiB of 64")
print("CONTAINED")

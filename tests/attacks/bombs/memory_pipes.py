# claim: what waits in pipes counts against the memory limit
# weaken: limits
# flags: --memory 24MiB
# limit: memory
import fcntl
import os

held, total = [], 0
while total < 48 << 20 and len(held) < 400:
    reader, writer = os.pipe()
    held.append((reader, writer))
    os.set_blocking(writer, False)
    try:
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 20)
    except OSError:
        pass  # a user has only so many large ones
    try:
        while True:
            total += os.write(writer, b"x" * 65536)
    except BlockingIOError:
        pass
print("ESCAPED:", total >> 20, "MiB in pipes, of 24 MiB")
print("CONTAINED")

# claim: extended attributes hold no more than the disk limit says
# weaken: limits,seccomp
# flags: --disk 4MiB
import os

LIMIT, PIECE = 4 << 20, b"x" * 60000
total = 0
try:
    for number in range(200):
        path = f"/tmp/{number % 50}"
        open(path, "w").close()
        os.setxattr(path, f"user.{number}", PIECE)
        total += len(PIECE)
except OSError as error:
    print("refused:", error)
print("stored:", total)
if total > LIMIT:
    print("ESCAPED:", total, "bytes in extended attributes, of", LIMIT)
print("CONTAINED")

# claim: files that are deleted and still open count against the disk limit
# weaken: limits
# flags: --disk 8MiB
import os

LIMIT = 8 << 20
held, total = [], 0
try:
    while total < 4 * LIMIT:
        file = os.open(f"/tmp/{len(held)}", os.O_CREAT | os.O_WRONLY)
        os.unlink(f"/tmp/{len(held)}")
        held.append(file)
        total += os.write(file, b"x" * (1 << 20))
except OSError as error:
    print("refused:", error)
if total > LIMIT:
    print("ESCAPED: holds", total, "bytes in deleted files")
print("CONTAINED")

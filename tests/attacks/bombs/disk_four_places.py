# claim: workspace, /tmp, home and /dev/shm together hold at most what the disk limit says
# weaken: limits
# flags: --disk 8MiB
# hits: disk
import os

LIMIT = 8 << 20
PLACES = ["/mnt/data", "/tmp", "/home/sandbox", "/dev/shm"]

for place in PLACES:
    seen = os.statvfs(place)
    size = seen.f_blocks * seen.f_frsize
    print(place, "claims", size)
    if size > LIMIT:
        print("ESCAPED:", place, "has room for", size)
total = 0
files = [open(place + "/bomb", "wb", buffering=0) for place in PLACES]
while files and total < 4 * LIMIT:
    for file in list(files):
        try:
            total += file.write(b"x" * 65536)
        except OSError as error:
            print("refused:", error)
            files.remove(file)
print("written:", total)
if total > LIMIT:
    print("ESCAPED: wrote", total, "bytes")
print("CONTAINED")

# claim: no file can even claim to be larger than the disk limit
# weaken: rlimits
# flags: --disk 8MiB
import os

SIZE = 1 << 40


def truncate(file):
    os.ftruncate(file, SIZE)


def write_at_the_end(file):
    os.pwrite(file, b"x", SIZE)


def in_memory(_):
    truncate(os.memfd_create("sparse"))


for grow in [truncate, write_at_the_end, in_memory]:
    file = os.open(f"/mnt/data/{grow.__name__}", os.O_CREAT | os.O_RDWR)
    try:
        grow(file)
        print("ESCAPED: a file of 1 TiB by", grow.__name__)
    except OSError as error:
        print("refused:", error)
print("CONTAINED")

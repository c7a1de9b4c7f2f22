# claim: room that is reserved without writing counts against the disk limit
# weaken: limits
# flags: --disk 8MiB
import ctypes
import os

LIMIT, PIECE = 8 << 20, 1 << 20
FALLOC_FL_KEEP_SIZE = 1
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
for mode in [0, FALLOC_FL_KEEP_SIZE]:
    reserved = 0
    for number in range(32):
        file = os.open(f"/tmp/{mode}-{number}", os.O_CREAT | os.O_RDWR)
        if libc.fallocate(file, mode, 0, PIECE) != 0:
            print("refused:", os.strerror(ctypes.get_errno()))
            break
        reserved += PIECE
    if reserved > LIMIT:
        print("ESCAPED: reserved", reserved, "bytes")
    for number in range(32):
        if os.path.exists(f"/tmp/{mode}-{number}"):
            os.truncate(f"/tmp/{mode}-{number}", 0)
            os.unlink(f"/tmp/{mode}-{number}")
print("CONTAINED")

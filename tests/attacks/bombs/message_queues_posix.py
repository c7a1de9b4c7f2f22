# claim: POSIX message queues hold at most 64 KiB together
# weaken: rlimits,landlock
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
CALL = {"mq_open": 240}  # x86_64
COUNT, SIZE = 8, 1024
attributes = (ctypes.c_long * 8)(0, COUNT, SIZE)
total = 0
while total <= 128 << 10:
    name = f"queue{total}".encode()
    if libc.syscall(CALL["mq_open"], name, os.O_CREAT | os.O_RDWR, 0o600, attributes) < 0:
        print("refused:", os.strerror(ctypes.get_errno()))
        break
    total += COUNT * SIZE
print("room for", total, "bytes")
if total > 64 << 10:
    print("ESCAPED: message queues for", total, "bytes")
print("CONTAINED")

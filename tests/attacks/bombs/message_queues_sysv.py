# claim: System V messages, which stay in the kernel, count against the memory limit
# weaken: limits
# flags: --memory 32MiB
# limit: memory
import ctypes

IPC_PRIVATE, IPC_NOWAIT = 0, 0o4000
libc = ctypes.CDLL(None, use_errno=True)
message = ctypes.create_string_buffer((1).to_bytes(8, "little") + b"x" * 8192)
sent = 0
for _ in range(4000):
    queue = libc.msgget(IPC_PRIVATE, 0o600)
    while libc.msgsnd(queue, message, ctypes.c_size_t(8192), IPC_NOWAIT) == 0:
        sent += 8192
if sent > 32 << 20:
    print("ESCAPED:", sent >> 20, "MiB in message queues")
print("CONTAINED")

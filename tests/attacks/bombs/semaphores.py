# claim: System V semaphores, which stay in the kernel, count against the memory limit
# weaken: limits
# flags: --memory 32MiB
# limit: memory
import ctypes

IPC_PRIVATE, MOST_PER_SET = 0, 32000
libc = ctypes.CDLL(None, use_errno=True)
for number in range(40):
    if libc.semget(IPC_PRIVATE, MOST_PER_SET, 0o600) < 0:
        print("refused after", number)
        break
else:
    print("ESCAPED: 40 sets of 32000 semaphores")
print("CONTAINED")

# claim: System V shared memory, attached or not, counts against the memory limit
# weaken: limits
# flags: --memory 64MiB
# limit: memory
import ctypes

IPC_PRIVATE, SIZE = 0, 8 << 20
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
libc.shmdt.argtypes = [ctypes.c_void_p]
for _ in range(20):
    segment = libc.shmget(IPC_PRIVATE, ctypes.c_size_t(SIZE), 0o1600)
    address = libc.shmat(segment, None, 0)
    ctypes.memset(address, 1, SIZE)
    libc.shmdt(address)
print("ESCAPED: left 160 MiB of 64 in shared memory segments")
print("CONTAINED")

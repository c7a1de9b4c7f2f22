# claim: hardly any memory can be locked, so that the host can always take back what it needs
# weaken: rlimits
import mmap
import ctypes
import os

SIZE = 4 << 20
libc = ctypes.CDLL(None, use_errno=True)
memory = mmap.mmap(-1, SIZE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(SIZE)) == 0:
    print("ESCAPED: locked 4 MiB")
else:
    print("refused:", os.strerror(ctypes.get_errno()))
MCL_FUTURE = 2
if libc.mlockall(MCL_FUTURE) == 0:
    try:
        mmap.mmap(-1, SIZE)
        print("ESCAPED: locked 4 MiB through mlockall")
    except OSError as error:
        print("refused:", error)
else:
    print("refused:", os.strerror(ctypes.get_errno()))
print("CONTAINED")

# claim: pages can't be offered for merging with equal pages of other sandboxes (KSM), page by page or as a whole
# weaken: seccomp
import ctypes
import errno
import mmap

PR_SET_MEMORY_MERGE, MADV_MERGEABLE = 67, 12
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))


def judge(name, result):
    why = errno.errorcode.get(ctypes.get_errno(), "")
    print("ESCAPED:" if result == 0 else "refused:", name, why, flush=True)


judge("madvise", libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(1 << 20), MADV_MERGEABLE))
judge("prctl", libc.prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0))
# What allocators advise is still heard.
assert libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(1 << 20), mmap.MADV_DONTNEED) == 0
print("CONTAINED")

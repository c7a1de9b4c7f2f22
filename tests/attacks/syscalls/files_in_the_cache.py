# claim: code is not told which files of the host are in memory: not by openat2, by reads that do not wait, by mincore or by cachestat
# weaken: seccomp
import ctypes
import errno
import mmap
import os

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
OPENAT2, PREADV2, CACHESTAT = 437, 327, 451
RESOLVE_CACHED, RWF_NOWAIT, RWF_DONTCACHE = 0x20, 8, 0x80
# Every interpreter has read these by now.
folder = "/usr/bin"
file = os.open("/usr/bin/env", os.O_RDONLY)


def judge(name, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    why = errno.errorcode.get(ctypes.get_errno(), "")
    # EAGAIN says "not in memory": an answer like any other.
    is_answer = result >= 0 or why == "EAGAIN"
    print("ESCAPED:" if is_answer else "refused:", name, result, why, flush=True)


how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_CACHED)
judge("openat2", OPENAT2, -100, folder.encode(), how, 24)
buffer = ctypes.create_string_buffer(4096)
vector = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 4096)
judge("a read that does not wait", PREADV2, file, vector, 1, 0, 0, RWF_NOWAIT)
judge("a read that keeps nothing", PREADV2, file, vector, 1, 0, 0, RWF_DONTCACHE)
judge("cachestat", CACHESTAT, file, (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 8)(), 0)
# mincore says of files that are not one's own that all of it is there.
size = os.fstat(file).st_size
mapped = mmap.mmap(file, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
pages = (ctypes.c_ubyte * (size // 4096 + 1))()
address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages) == 0:
    if any(page & 1 == 0 for page in pages[: size // 4096]):
        print("ESCAPED: mincore tells of pages that are not in memory")
print("CONTAINED")

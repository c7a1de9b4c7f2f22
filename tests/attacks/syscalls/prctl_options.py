# claim: prctl changes nothing but what is harmless about oneself
# weaken: seccomp
import ctypes
import errno
import os

libc = ctypes.CDLL(None, use_errno=True)
OPTIONS = {
    "SET_SECCOMP strict, wrong mode": (22, 9), "CAPBSET_DROP": (24, 0), "SET_TSC": (26, 1), "SET_SECUREBITS": (28, 0),
    "MCE_KILL": (33, 1, 0), "SET_MM brk": (35, 7, 0), "SET_PTRACER": (0x59616D61, -1), "SET_KEEPCAPS": (8, 1),
    "SET_IO_FLUSHER": (57, 1), "SET_SYSCALL_USER_DISPATCH off": (59, 0), "SCHED_CORE create": (62, 1, 0, 0, 0),
    "SET_MDWE": (65, 1), "SET_MEMORY_MERGE": (67, 1), "SPEC_STORE_BYPASS": (53, 0, 2), "SET_UNALIGN": (6, 1),
    "TASK_PERF_EVENTS_DISABLE": (31,), "SET_FPEMU": (10, 1),
}

for name, arguments in OPTIONS.items():
    if os.fork() == 0:
        ctypes.set_errno(0)
        arguments = [ctypes.c_long(argument) for argument in (*arguments, 0, 0, 0, 0)[:5]]
        result = libc.prctl(*arguments)
        why = errno.errorcode.get(ctypes.get_errno(), "")
        print("ESCAPED:" if result >= 0 else "refused:", name, why, flush=True)
        os._exit(0)
    os.wait()
print("CONTAINED")

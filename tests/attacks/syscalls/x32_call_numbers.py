# claim: numbers with the x32 bit, which alias other calls, end the process
# weaken: seccomp
import ctypes
import os
import signal

X32 = 0x40000000
NUMBER = {"getpid": 39, "ptrace": 521, "socket": 41, "unshare": 272, "io_setup": 543}
libc = ctypes.CDLL(None, use_errno=True)

for name, number in NUMBER.items():
    pid = os.fork()
    if pid == 0:
        result = libc.syscall(ctypes.c_long(X32 | number), 0, 0, 0, 0)
        print("ESCAPED: the filter let x32", name, "through to the kernel:", result, ctypes.get_errno(), flush=True)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        print("killed:", name, signal.Signals(os.WTERMSIG(status)).name)
print("CONTAINED")

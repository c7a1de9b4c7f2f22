# claim: clocks can't be shifted for the programs that code starts
# weaken: seccomp,forbid_namespaces,landlock
import ctypes
import os

UNSHARE, NEWUSER_NEWTIME = 272, 0x10000080
libc = ctypes.CDLL(None, use_errno=True)


def shift(where):
    for clock in ("monotonic", "boottime"):
        try:
            with open("/proc/self/timens_offsets", "w") as file:
                file.write(f"{clock} 864000 0")
            print("ESCAPED: shifted", clock, where, flush=True)
        except OSError as error:
            print("refused:", clock, where, error.strerror, flush=True)


shift("here")
if os.fork() == 0:
    print("unshare gave", libc.syscall(UNSHARE, NEWUSER_NEWTIME), flush=True)
    shift("in a namespace")
    os._exit(0)
os.wait()
print("CONTAINED")

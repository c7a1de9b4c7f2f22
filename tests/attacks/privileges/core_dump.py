# claim: a crash leaves no memory image
# weaken: rlimits,seccomp
import contextlib
import ctypes
import os
import resource
import signal

for signal_number in (signal.SIGSEGV, signal.SIGQUIT, signal.SIGABRT, signal.SIGSYS):
    pid = os.fork()
    if pid == 0:
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
        signal.signal(signal_number, signal.SIG_DFL)
        os.kill(os.getpid(), signal_number)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    dumped = os.WCOREDUMP(status)
    print("ESCAPED: dumped core on" if dumped else "no core on", signal.Signals(signal_number).name)
for name in os.listdir("/mnt/data"):
    if name.split(".")[0] == "core":
        print("ESCAPED: found", name)
        os.remove(f"/mnt/data/{name}")
print("CONTAINED")

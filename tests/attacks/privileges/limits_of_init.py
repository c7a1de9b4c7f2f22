# claim: code can neither stop nor kill the sandbox's init nor change its limits
# weaken: seccomp
import os
import resource
import signal

INIT = 1
ATTEMPTS = {
    "lower its limits": lambda: resource.prlimit(INIT, resource.RLIMIT_NOFILE, (3, 3)),
    "limit its CPU time": lambda: resource.prlimit(INIT, resource.RLIMIT_CPU, (1, 1)),
}
# Refused by Landlock from its ABI 6 on; before, dropped by the kernel, which protects a namespace's first process. Without
# init this program would not get to its last line, nor end when it does.
SIGNALS = {
    "stop it": lambda: os.kill(INIT, signal.SIGSTOP),
    "kill it": lambda: os.kill(INIT, signal.SIGKILL),
    "kill it by descriptor": lambda: signal.pidfd_send_signal(os.pidfd_open(INIT), signal.SIGKILL),
}
# The numbers of a host's processes are out of bounds for this case.
if os.getppid() == INIT and os.getpid() < 100:
    for name, attempt in ATTEMPTS.items():
        try:
            attempt()
            print("ESCAPED:", name)
        except OSError as error:
            print("refused:", name, error.strerror)
    for name, attempt in SIGNALS.items():
        try:
            attempt()
            print("dropped:", name)
        except OSError as error:
            print("refused:", name, error.strerror)
else:
    print("ESCAPED: not in a pid namespace of its own")
print("CONTAINED")

# claim: two processes that start each other again when one is killed end with the program
# weaken: kill
# flags: --pids 64
import os
import signal
import time

END = time.monotonic() + 8


def guard(other):
    """Watches the other; takes its place by a fork when it is gone."""
    os.setsid()
    while time.monotonic() < END:
        try:
            os.kill(other, 0)
            time.sleep(0.005)
        except ProcessLookupError:
            me = os.getpid()
            other = os.fork()
            if other == 0:
                other = me
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pass
    os._exit(0)


signal.signal(signal.SIGTERM, signal.SIG_IGN)
first = os.fork()
if first == 0:
    partner = os.fork()
    guard(partner or os.getppid())
time.sleep(0.2)
os.kill(first, signal.SIGKILL)
os.waitpid(first, 0)
time.sleep(0.1)
print("CONTAINED")

# claim: code can't put itself before others: no negative niceness, no realtime or deadline class, no disk priority
# weaken: seccomp
import ctypes
import os
import struct

SCHED_SETATTR, IOPRIO_SET = 314, 251
SCHED_FIFO, SCHED_RR, SCHED_DEADLINE, SCHED_EXT = 1, 2, 6, 7
libc = ctypes.CDLL(None, use_errno=True)


def raw(*args):
    if libc.syscall(*(ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args)) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def deadline():
    # A tenth of a millisecond in every second.
    attributes = struct.pack("<IIQiIQQQ", 48, SCHED_DEADLINE, 0, 0, 0, 100_000, 10**9, 10**9)
    raw(SCHED_SETATTR, 0, attributes, 0)


def negative():
    os.setpriority(os.PRIO_PROCESS, 0, -20)


ATTEMPTS = {
    "nice": lambda: os.nice(-1),
    "setpriority": negative,
    "SCHED_FIFO": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    "SCHED_RR": lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(99)),
    "SCHED_DEADLINE": deadline,
    "disk: realtime": lambda: raw(IOPRIO_SET, 1, 0, 1 << 13),
    "disk: best effort, first": lambda: raw(IOPRIO_SET, 1, 0, 2 << 13),
}
for name, attempt in ATTEMPTS.items():
    try:
        attempt()
        print("ESCAPED:", name)
    except OSError as error:
        print("refused:", name, error.strerror)
# Down and up again: what was given up does not come back either.
os.nice(5)
try:
    os.nice(-5)
    print("ESCAPED: nice down and up")
except OSError as error:
    print("refused: nice up", error.strerror)
print("CONTAINED")

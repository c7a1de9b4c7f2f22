# claim: no signal, sent in any way, ends or stops init, which then still ends what is left running
# weaken: kill
import ctypes
import os
import signal
import sys
import time

if os.getpid() >= 100:
    print("ESCAPED: not in a PID namespace of its own; nothing was signalled")
    sys.exit()
libc = ctypes.CDLL(None, use_errno=True)
CALL = {"tkill": 200, "tgkill": 234, "pidfd_send_signal": 424, "pidfd_open": 434}  # x86_64
init = libc.syscall(CALL["pidfd_open"], 1, 0)
answers = set()
for number in [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGTERM, signal.SIGCHLD, signal.SIGRTMIN]:
    for result in [
        libc.kill(1, number),
        libc.syscall(CALL["tkill"], 1, number),
        libc.syscall(CALL["tgkill"], 1, 1, number),
        libc.syscall(CALL["pidfd_send_signal"], init, number, None, 0),
        libc.sigqueue(1, number, None),
        libc.kill(0, 0),
    ]:
        answers.add((result, os.strerror(ctypes.get_errno())))
print("answers:", answers)
time.sleep(0.1)
if os.fork() == 0:
    os.setsid()
    time.sleep(15)
    os._exit(0)
print("CONTAINED")

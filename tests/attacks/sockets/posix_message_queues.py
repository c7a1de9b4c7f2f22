# claim: POSIX message queues do not reach from one sandbox into another
# weaken: ipc_namespace,landlock
# twice: yes
import ctypes
import os
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
MQ_OPEN, MQ_UNLINK, MQ_TIMEDSEND, MQ_TIMEDRECEIVE = 240, 241, 242, 243
key, role = sys.argv[2:4]
name = f"redoma-attack-{key}".encode()
if role == "a":
    os.umask(0)
    attributes = (ctypes.c_long * 8)(0, 1, 64)
    queue = libc.syscall(MQ_OPEN, name, os.O_CREAT | os.O_RDWR, 0o666, attributes)
    print("made", queue, "sent", libc.syscall(MQ_TIMEDSEND, queue, b"hello from a", 12, 0, None))
    time.sleep(2)
    libc.syscall(MQ_UNLINK, name)
else:
    buffer = ctypes.create_string_buffer(64)
    end = time.monotonic() + 1.8
    while time.monotonic() < end:
        queue = libc.syscall(MQ_OPEN, name, os.O_RDWR | os.O_NONBLOCK, 0, None)
        if queue >= 0 and libc.syscall(MQ_TIMEDRECEIVE, queue, buffer, 64, None, None) > 0:
            print("ESCAPED: received", buffer.value)
            break
        time.sleep(0.02)
print("CONTAINED")

# claim: System V message queues do not reach from one sandbox into another
# weaken: ipc_namespace
# twice: yes
import ctypes
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
IPC_CREAT, IPC_RMID, IPC_NOWAIT = 0o1000, 0, 0o4000
key, role = sys.argv[2:4]
number = 0x5EDB0000 + sum(key.encode())
message = ctypes.create_string_buffer((1).to_bytes(8, "little") + b"hello from a", 64)
if role == "a":
    queue = libc.msgget(number, IPC_CREAT | 0o666)
    print("made", queue, "sent", libc.msgsnd(queue, message, 12, IPC_NOWAIT))
    time.sleep(2)
    libc.msgctl(queue, IPC_RMID, None)
else:
    end = time.monotonic() + 1.8
    while time.monotonic() < end:
        queue = libc.msgget(number, 0)
        if queue >= 0 and libc.msgrcv(queue, message, 12, 0, IPC_NOWAIT) > 0:
            print("ESCAPED: received", message.raw[8:20])
            break
        time.sleep(0.02)
print("CONTAINED")

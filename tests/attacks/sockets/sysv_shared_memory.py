# claim: System V memory and semaphores of one sandbox are not another's, whatever key they agree on
# weaken: ipc_namespace
# twice: yes
import ctypes
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
IPC_CREAT, IPC_RMID = 0o1000, 0
key, role = sys.argv[2:4]
number = 0x5EDA0000 + sum(key.encode())
if role == "a":
    memory = libc.shmget(number, 4096, IPC_CREAT | 0o666)
    semaphore = libc.semget(number, 1, IPC_CREAT | 0o666)
    ctypes.memmove(libc.shmat(memory, None, 0), b"hello from a", 13)
    print("made", memory, semaphore)
    time.sleep(2)
    libc.shmctl(memory, IPC_RMID, None)
    libc.semctl(semaphore, 0, IPC_RMID)
else:
    end = time.monotonic() + 1.8
    while time.monotonic() < end:
        memory = libc.shmget(number, 0, 0)
        semaphore = libc.semget(number, 0, 0)
        if memory >= 0:
            print("ESCAPED: read", ctypes.string_at(libc.shmat(memory, None, 0)))
            break
        if semaphore >= 0:
            print("ESCAPED: found the semaphore")
            break
        time.sleep(0.02)
print("CONTAINED")

# claim: a process with 50 running threads ends with the program
# weaken: kill
# flags: --pids 64
import os
import threading
import time

ready, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    for _ in range(50):
        threading.Thread(target=time.sleep, args=(15,)).start()
    os.write(tell, b".")
    os._exit(0) if threading.active_count() < 51 else time.sleep(15)
os.read(ready, 1)
print("CONTAINED", flush=True)
os._exit(0)

# claim: a process that forks and leaves without a pause, never long under one number, ends with the program
# weaken: kill
import os
import time

if os.fork() == 0:
    os.setsid()
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
    os._exit(0)
time.sleep(0.2)
print("CONTAINED")

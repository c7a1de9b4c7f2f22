# claim: a child that goes on printing does not keep the run from ending with the program
# weaken: kill
# flags: --wall 3s
import os
import time

if os.fork() == 0:
    os.setsid()
    end = time.monotonic() + 6
    while time.monotonic() < end:
        os.write(1, b"still here\n")
        time.sleep(0.001)
    os._exit(0)
time.sleep(0.1)
print("CONTAINED", flush=True)
os._exit(0)

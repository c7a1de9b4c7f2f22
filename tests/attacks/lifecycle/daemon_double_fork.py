# claim: a daemon (forked twice, with a session of its own) ends with the program
# weaken: kill
import os
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(15)
    os._exit(0)
os.wait()
print("CONTAINED")

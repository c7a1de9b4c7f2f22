# claim: threads count as processes do, and are at most as many as the pids limit says
# weaken: limits
# flags: --pids 32
# hits: pids
import os
import threading
import time

threading.stack_size(64 << 10)
started = 1
try:
    while started < 100:
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
        started += 1
except RuntimeError as error:
    print("refused:", error)
print("threads:", started)
if started > 32:
    print("ESCAPED:", started, "threads at one time")
print("CONTAINED", flush=True)
os._exit(0)

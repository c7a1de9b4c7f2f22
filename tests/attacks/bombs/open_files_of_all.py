# claim: all processes together open at most 16 times as many files as one may: parts of these are in memory that nothing counts
# weaken: limits
# flags: --nofile 64
# limit: nofile
import os
import time

for _ in range(40):
    if os.fork() == 0:
        for _ in range(50):
            os.eventfd(0)
        time.sleep(20)
        os._exit(0)
time.sleep(2)
print("ESCAPED: 40 processes hold 50 files each")
print("CONTAINED")

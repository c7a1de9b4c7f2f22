# claim: the CPU time of all processes together ends at its limit
# weaken: limits
# flags: --cpu-time 500ms
# limit: cpu_time
import os
import time

for _ in range(4):
    if os.fork() == 0:
        while time.process_time() < 0.4:
            pass
        os._exit(0)
for _ in range(4):
    os.wait()
print("ESCAPED: used 1.6 s of CPU time")
print("CONTAINED")

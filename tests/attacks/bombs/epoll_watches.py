# claim: what the kernel keeps for epoll counts against the memory limit
# weaken: limits
# flags: --memory 32MiB
# limit: memory
import os
import select

files = [os.dup(0) for _ in range(500)]
watchers = []
for _ in range(500):
    watcher = select.epoll()
    watchers.append(watcher)
    for file in files:
        watcher.register(file, 0)
print("ESCAPED: 250000 watches in 32 MiB")
print("CONTAINED")

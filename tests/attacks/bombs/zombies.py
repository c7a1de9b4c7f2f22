# claim: zombies that nobody reaps count against the pids limit, and those whose parent is gone are reaped by init
# weaken: limits
# flags: --pids 32
# hits: pids
import os

zombies = 0
try:
    while zombies < 200:
        if os.fork() == 0:
            os._exit(0)
        zombies += 1
except OSError as error:
    print("refused:", error)
print("zombies:", zombies)
if zombies > 32:
    print("ESCAPED:", zombies, "zombies at one time")

while zombies:
    os.wait()
    zombies -= 1
for _ in range(300):
    # The grandchild becomes init's; if init did not reap it, forks would soon fail here.
    if os.fork() == 0:
        os.fork()
        os._exit(0)
    os.wait()
print("CONTAINED")

# claim: a process opens at most as many files as the nofile limit says, and can't raise it
# weaken: limits
# flags: --nofile 64
import os
import resource

try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (65, 65))
    print("ESCAPED: raised the limit")
except (OSError, ValueError) as error:
    print("refused:", error)
opened = 3
try:
    while opened < 300:
        os.dup(0)
        opened += 1
except OSError as error:
    print("refused:", error)
print("open:", opened)
if opened > 64:
    print("ESCAPED:", opened, "open files")
print("CONTAINED")

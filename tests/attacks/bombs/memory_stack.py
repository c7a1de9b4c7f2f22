# claim: a stack does not grow beyond 64 MiB, however deep the recursion
# weaken: rlimits
import os
import resource
import subprocess
import sys

RECURSE = """
import json, sys
sys.setrecursionlimit(10**7)
json.loads('[' * 600_000 + ']' * 600_000)
size = [line for line in open('/proc/self/status') if line.startswith('VmStk')][0].split()[1]
print('ESCAPED: a stack of', int(size) >> 10, 'MiB' , flush=True) if int(size) > 65 << 10 else print('stack:', size)
import os; os._exit(0)
"""
for size in [512 << 20, 64 << 20]:
    try:
        resource.setrlimit(resource.RLIMIT_STACK, (size, size))
        print("stack limit:", size >> 20, "MiB", flush=True)
        break
    except (OSError, ValueError) as error:
        print("refused:", error, flush=True)
ended = subprocess.run([sys.executable, "-c", RECURSE])
print("the recursion ended with", ended.returncode)
print("CONTAINED")

# claim: a program that closes its output and goes on is still watched, and ended at the wall limit
# weaken: kill
# flags: --wall 500ms
# limit: wall
import os
import time

os.closerange(0, 1024)
time.sleep(15)

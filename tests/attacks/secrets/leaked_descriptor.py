# claim: no descriptor that the host left open can be read
# weaken: close_fds
import os
for fd in range(3, 1024):
    try:
        place = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        continue
    try:
        print("ESCAPED:", fd, place, os.pread(fd, 200, 0))
    except OSError as error:
        print("open all the same:", fd, place, error.strerror)
print("CONTAINED")

# claim: what others do with the runtime's files, such as the programs they start, can't be watched
# weaken: seccomp
# twice: yes
import ctypes
import os
import sys
import time

IN_OPEN, IN_NONBLOCK = 0x20, 0o4000
FOLDER, NAME = "/usr/share/doc", b"bash"  # opened by nobody else
role = sys.argv[3]
end = time.monotonic() + 2
if role == "b":
    while time.monotonic() < end:
        os.close(os.open(f"{FOLDER}/{NAME.decode()}", os.O_RDONLY))
        time.sleep(0.05)
else:
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(IN_NONBLOCK)
    if watch < 0 or libc.inotify_add_watch(watch, FOLDER.encode(), IN_OPEN) < 0:
        print("refused:", os.strerror(ctypes.get_errno()))
    while watch >= 0 and time.monotonic() < end:
        time.sleep(0.1)
        try:
            if NAME in os.read(watch, 65536):
                print("ESCAPED: saw which file another sandbox opened")
                break
        except BlockingIOError:
            pass
print("CONTAINED")

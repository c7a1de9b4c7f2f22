# claim: the older way to watch folders (fcntl F_NOTIFY) tells nothing about the host and other sandboxes either
# weaken: seccomp
# twice: yes
import fcntl
import os
import signal
import sys
import time

DN_ACCESS, DN_MULTISHOT = 1, 1 << 31
role = sys.argv[3]
signals = []
end = time.monotonic() + 1.5
if role == "a":
    signal.signal(signal.SIGIO, lambda *_: signals.append(1))
    try:
        fcntl.fcntl(os.open("/usr/bin", os.O_RDONLY), fcntl.F_NOTIFY, DN_ACCESS | DN_MULTISHOT - 2**32)
    except OSError as error:
        print("refused:", error)
    while time.monotonic() < end:
        time.sleep(0.05)
    if signals:
        print("ESCAPED: others read files in /usr/bin,", len(signals), "times")
else:
    while time.monotonic() < end:
        with open("/usr/bin/tsort", "rb") as file:
            file.read(1)
        time.sleep(0.05)
print("CONTAINED")

# claim: code is not told which files of /usr the host and other sandboxes open
# weaken: seccomp
# twice: yes
import ctypes
import os
import struct
import sys
import time

# Rarely used by anybody: what is opened here is opened by the other sandbox.
NAMES = ("tsort", "ptx", "pathchk")
IN_OPEN = 0x20
libc = ctypes.CDLL(None, use_errno=True)
role = sys.argv[3]


def names(events):
    at = 0
    while at < len(events):
        length = struct.unpack_from("iIII", events, at)[3]
        yield events[at + 16:at + 16 + length].rstrip(b"\0").decode()
        at += 16 + length


end = time.monotonic() + 1.5
if role == "a":
    watcher = libc.inotify_init1(os.O_NONBLOCK)
    for path in (b"/usr/bin", b"/usr/lib", b"/etc", b"/dev/null"):
        print("watch", path, "gave", libc.inotify_add_watch(watcher, path, IN_OPEN))
    seen = set()
    while time.monotonic() < end:
        time.sleep(0.05)
        try:
            seen.update(names(os.read(watcher, 65536)))
        except OSError:
            pass
    if seen:
        print("ESCAPED: others opened", sorted(seen))
else:
    while time.monotonic() < end:
        for name in NAMES:
            os.close(os.open(f"/usr/bin/{name}", os.O_RDONLY))
        time.sleep(0.05)
print("CONTAINED")

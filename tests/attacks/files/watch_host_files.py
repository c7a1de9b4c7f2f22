# claim: what the host and other sandboxes open and start can't be watched
# weaken: seccomp
# twice: yes
import ctypes, fcntl, os, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
role = sys.argv[3]
ALL_EVENTS = 0xFFF
SHARED = "/usr/share"
PATIENCE = 15
if role == "b":
    # The one to be watched.
    for _ in range(PATIENCE):
        os.listdir(SHARED)
        time.sleep(0.1)
else:
    seen = set()
    folder = os.open(SHARED, os.O_RDONLY)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    for path in (SHARED, "/usr/bin", "/opt/python/bin"):
        if libc.inotify_add_watch(watch, path.encode(), ALL_EVENTS) < 0:
            print("refused: inotify on", path, os.strerror(ctypes.get_errno()))
    signal.signal(signal.SIGIO, lambda *_: seen.add("dnotify"))
    try:
        fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_ACCESS | fcntl.DN_MULTISHOT)
    except OSError as error:
        print("refused: dnotify", error.strerror)
    for _ in range(PATIENCE):
        time.sleep(0.1)
        try:
            events = os.read(watch, 1 << 16)
        except OSError:
            continue
        while events:
            number, mask, _, length = struct.unpack("iIII", events[:16])
            seen.add((number, events[16:16 + length].rstrip(b"\0").decode()))
            events = events[16 + length:]
    if seen:
        print("ESCAPED: saw others at", sorted(map(str, seen))[:10])
print("CONTAINED")

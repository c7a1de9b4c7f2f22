# claim: a descriptor opened for reading can't be opened again for writing through /proc/self/fd
# weaken: canary,landlock,read_only
import os, sys
canary = sys.argv[1]
for path in (canary + "/victim.txt", "/etc/passwd", "/usr/bin/env", sys.executable):
    for flags in (os.O_RDONLY, os.O_PATH):
        try:
            fd = os.open(path, flags)
            again = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            print("refused:", path, error.strerror)
            continue
        print("ESCAPED:", path, "is open for writing")
        if path.startswith(canary):
            os.write(again, b"changed")
print("CONTAINED")

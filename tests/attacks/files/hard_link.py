# claim: no hard link to a host file can be made, neither into the workspace nor beside it
# weaken: canary,landlock,read_only
import os, sys
canary = sys.argv[1]
sources = [canary + "/secret.txt", "/usr/bin/env", "/etc/passwd", "/proc/self/exe"]
for source in sources:
    for target in ("/mnt/data/name", "/tmp/name", canary + "/name"):
        for follow in (True, False):
            try:
                os.link(source, target, follow_symlinks=follow)
                print("ESCAPED: linked", source, "to", target)
                os.unlink(target)
            except OSError as error:
                print("refused:", source, target, error.strerror)
print("CONTAINED")

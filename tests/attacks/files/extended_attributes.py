# claim: host files get no extended attributes
# weaken: canary,read_only,seccomp
import os, sys
canary = sys.argv[1]
for path in (canary + "/secret.txt", canary, "/usr/bin/env", "/etc/passwd", "/"):
    for name in ("user.redoma", "trusted.redoma", "security.redoma", "system.posix_acl_access"):
        try:
            os.setxattr(path, name, b"x")
            print("ESCAPED: set", name, "on", path)
        except OSError as error:
            print("refused:", path, name, error.strerror)
print("CONTAINED")

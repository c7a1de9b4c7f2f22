# claim: there is no folder that two sandboxes can both write to or see each other's files in
# weaken: canary,landlock,read_only
# twice: yes
import os
import sys
import time

canary, key, role = sys.argv[1:4]
FOLDERS = [
    "/tmp", "/dev/shm", "/mnt/data", "/home/sandbox", "/var/tmp", "/run", "/run/lock", "/dev/mqueue", "/dev/pts", "/",
    "/opt", "/etc", "/usr", "/usr/local", "/proc", canary,
]
name = f"redoma-attack-{key}"
if role == "a":
    for folder in FOLDERS:
        try:
            with open(f"{folder}/{name}", "w") as file:
                file.write("hello from a")
            print("wrote in", folder)
        except OSError as error:
            print("refused:", folder, error.strerror)
    time.sleep(2)
    for folder in FOLDERS:
        try:
            os.remove(f"{folder}/{name}")
        except OSError:
            pass
else:
    end = time.monotonic() + 1.8
    while time.monotonic() < end:
        seen = [folder for folder in FOLDERS if os.path.exists(f"{folder}/{name}")]
        if seen:
            print("ESCAPED: the other sandbox's file is in", seen)
            break
        time.sleep(0.02)
print("CONTAINED")

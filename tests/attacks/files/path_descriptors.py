# claim: descriptors that only name a place (O_PATH) do not help to open what is there
# weaken: canary,landlock
import os, sys
canary = sys.argv[1]

def by_folder():
    fd = os.open(canary, os.O_PATH | os.O_DIRECTORY)
    return os.open("secret.txt", os.O_RDONLY, dir_fd=fd)

def by_file():
    fd = os.open(canary + "/secret.txt", os.O_PATH)
    return os.open(f"/dev/fd/{fd}", os.O_RDONLY)

def by_working_folder():
    os.fchdir(os.open(canary, os.O_PATH))
    return os.open("./secret.txt", os.O_RDONLY)

def by_link_to_descriptor():
    fd = os.open(canary, os.O_PATH)
    os.symlink(f"/proc/self/fd/{fd}/secret.txt", "/tmp/by-descriptor")
    return os.open("/tmp/by-descriptor", os.O_RDONLY)

for way in (by_folder, by_file, by_working_folder, by_link_to_descriptor):
    try:
        print("ESCAPED:", way.__name__, os.read(way(), 100))
    except OSError as error:
        print("refused:", way.__name__, error.strerror)
print("CONTAINED")

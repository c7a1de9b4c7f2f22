# claim: files, folders, links and sockets are together at most as many as the files limit says
# weaken: limits
# flags: --files 200
# hits: files
import os
import socket


def bind(path):
    socket.socket(socket.AF_UNIX).bind(path)


def link(path):
    os.link("/tmp/first", path)


open("/tmp/first", "w").close()
KINDS = {
    "file": lambda path: open(path, "x").close(),
    "folder": os.mkdir,
    "symlink": lambda path: os.symlink("x" * 300, path),
    "pipe": os.mkfifo,
    "socket": bind,
    "hard link": link,
}
PLACES = ["/mnt/data", "/tmp", "/home/sandbox", "/dev/shm"]
made = 0
for number in range(150):
    for kind, make in list(KINDS.items()):
        try:
            make(f"{PLACES[number % 4]}/{kind}{number}")
            made += 1
        except OSError as error:
            print("refused:", kind, error)
            del KINDS[kind]
print("made:", made)
if made > 200:
    print("ESCAPED: made", made, "things in 200")
print("CONTAINED")

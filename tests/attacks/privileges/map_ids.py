# claim: user and group ids can't be mapped anew, in this namespace or in one's own
# weaken: seccomp,forbid_namespaces,landlock
import ctypes
import os

UNSHARE, NEWUSER = 272, 0x10000000
libc = ctypes.CDLL(None, use_errno=True)


def write(path, text):
    try:
        with open(path, "w") as file:
            file.write(text)
        print("ESCAPED: wrote", text, "to", path, flush=True)
    except OSError as error:
        print("refused:", path, error.strerror, flush=True)


def attack(process):
    write(f"/proc/{process}/setgroups", "deny")
    for ids in ("0 0 4294967295", "0 1000 1", "1000 0 1"):
        write(f"/proc/{process}/uid_map", ids)
        write(f"/proc/{process}/gid_map", ids)


attack("self")
attack("1")
if os.fork() == 0:
    print("unshare gave", libc.syscall(UNSHARE, NEWUSER), flush=True)
    attack("self")
    try:
        os.setresuid(0, 0, 0)
        print("ESCAPED: uid", os.getuid(), flush=True)
    except OSError as error:
        print("refused: setresuid", error.strerror, flush=True)
    os._exit(0)
os.wait()
print("CONTAINED")

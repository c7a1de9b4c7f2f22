# claim: code is in no group but the sandbox's own, and can't join any
# weaken: seccomp,forbid_namespaces,landlock
import ctypes
import os

UNSHARE, NEWUSER = 272, 0x10000000
libc = ctypes.CDLL(None, use_errno=True)


def attack(where):
    for groups in ([], [0], [4, 6, 27], [1000]):
        try:
            os.setgroups(groups)
            print("ESCAPED: groups", os.getgroups(), where, flush=True)
        except OSError as error:
            print("refused:", groups, where, error.strerror, flush=True)
    try:
        os.setresgid(0, 0, 0)
        print("ESCAPED: group 0", where, flush=True)
    except OSError as error:
        print("refused: setresgid", where, error.strerror, flush=True)


# A plain user's own groups stay, without a number here (65534): only root may drop them.
outsiders = [group for group in os.getgroups() if group not in (1000, 65534)]
if outsiders:
    print("ESCAPED: in the groups", outsiders)
attack("here")
if os.fork() == 0:
    if libc.syscall(UNSHARE, NEWUSER) == 0:
        for file, text in (("setgroups", "deny"), ("gid_map", "0 1000 1")):
            try:
                with open(f"/proc/self/{file}", "w") as target:
                    target.write(text)
            except OSError as error:
                print("refused:", file, error.strerror, flush=True)
    attack("in a namespace")
    os._exit(0)
os.wait()
print("CONTAINED")

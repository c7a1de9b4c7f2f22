# claim: no exec can add rights (no_new_privs), and this can't be taken back
# weaken: capabilities,landlock
import ctypes
import subprocess

PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS = 38, 39
libc = ctypes.CDLL(None, use_errno=True)

for value in (0, 2, -1):
    print("ask for", value, "gave", libc.prctl(PR_SET_NO_NEW_PRIVS, value, 0, 0, 0))
if libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1:
    print("ESCAPED: exec may add rights")
for command in (["cat", "/proc/self/status"], ["setsid", "sh", "-c", "cat /proc/self/status"]):
    status = subprocess.run(command, capture_output=True, text=True).stdout
    is_set = "NoNewPrivs:\t1" in status
    print("set in" if is_set else "ESCAPED: not set in", *command)
print("CONTAINED")

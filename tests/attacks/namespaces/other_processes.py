# claim: code sees no process but those that it started: not the host's, not even the sandbox's init
# weaken: hidepid
import os
import subprocess

child = subprocess.Popen(["sleep", "5"])
own = {os.getpid(), child.pid}
visible = {int(name) for name in os.listdir("/proc") if name.isdigit()}
print("visible:", sorted(visible), "own:", sorted(own))
if visible - own:
    print("ESCAPED: sees", sorted(visible - own))
for pid in list(range(1, 300)) + [2**15 - 1, 2**22 - 1]:
    if pid in own:
        continue
    for name in ("status", "cmdline", "environ", "maps", "fd", "root", "cwd", "exe", "ns"):
        if os.path.lexists(f"/proc/{pid}/{name}"):
            print(f"ESCAPED: /proc/{pid}/{name}")
# Signal 0 does nothing but tell whether somebody is there. Init is: that may be told (before Landlock's ABI 6 it is), and
# the kernel drops what is sent to it.
found = []
for pid in range(1, 5000):
    try:
        os.kill(pid, 0)
        found.append(pid)
    except OSError:
        pass
if set(found) - own - {1}:
    print("ESCAPED: may signal", sorted(set(found) - own))
child.kill()
print("CONTAINED")

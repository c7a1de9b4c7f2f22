# claim: /proc shows the program's own processes and nobody else
# weaken: hidepid
import os, subprocess
child = subprocess.Popen(["sleep", "5"])
own = {os.getpid(), child.pid}
shown = {int(name) for name in os.listdir("/proc") if name.isdigit()}
if shown - own:
    print("ESCAPED: sees", sorted(shown - own))
# Processes can be there without being listed.
for number in range(1, 400):
    if number not in own and os.path.exists(f"/proc/{number}/status"):
        print("ESCAPED: process", number, "has a folder")
if not own <= shown:
    print("its own processes are missing:", own - shown)
child.kill()
print("CONTAINED")

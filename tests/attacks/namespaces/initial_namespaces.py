# claim: none of the namespaces that code is in is one that the machine started with
# weaken: ipc_namespace
import os

# The numbers that Linux gives to its first namespaces; network and mounts have had one of their own since 6.18.
INITIAL = {
    "cgroup": 4026531835, "ipc": 4026531839, "mnt": 4026531832, "net": 4026531833, "pid": 4026531836,
    "time": 4026531834, "user": 4026531837, "uts": 4026531838,
}
for name, number in INITIAL.items():
    inode = os.stat(f"/proc/self/ns/{name}").st_ino
    print("ESCAPED: in the machine's own" if inode == number else "own:", name, inode)
    inode = os.stat(f"/proc/self/ns/{name}_for_children").st_ino if name in ("pid", "time") else 0
    if inode == number:
        print("ESCAPED: children would be in the machine's own", name)
print("CONTAINED")

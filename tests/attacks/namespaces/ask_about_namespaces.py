# claim: the kernel does not tell about namespaces around this one: parents, owners, siblings
# weaken: seccomp
import fcntl
import os

REQUESTS = {
    "NS_GET_USERNS": 0xB701, "NS_GET_PARENT": 0xB702, "NS_GET_NSTYPE": 0xB703, "NS_GET_OWNER_UID": 0xB704,
    "NS_GET_PID_FROM_PIDNS": 0x8004B706, "NS_GET_TGID_FROM_PIDNS": 0x8004B707, "NS_MNT_GET_INFO": 0x8010B70A,
    "NS_MNT_GET_NEXT": 0x8010B70B, "NS_MNT_GET_PREV": 0x8010B70C,
}
for name in ("user", "pid", "mnt", "net", "uts", "cgroup"):
    descriptor = os.open(f"/proc/self/ns/{name}", os.O_RDONLY)
    for request, number in REQUESTS.items():
        try:
            answer = fcntl.ioctl(descriptor, number, bytes(64))
            print("ESCAPED:", name, request, "gave", answer[:16])
        except OSError as error:
            print("refused:", name, request, error.strerror)
print("CONTAINED")

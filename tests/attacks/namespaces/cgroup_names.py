# claim: code is not told in which cgroup of the host it is, nor what cgroups the host has
# weaken: mask_proc
for process in ("self", "thread-self", "1"):
    try:
        lines = open(f"/proc/{process}/cgroup").read().splitlines()
    except OSError as error:
        print("refused:", process, error.strerror)
        continue
    for line in lines:
        path = line.split(":", 2)[2]
        print("root of" if path == "/" else "ESCAPED: told of", line)
controllers = open("/proc/cgroups").read()
print("ESCAPED: the host's cgroups: " + controllers.splitlines()[1] if controllers else "empty: /proc/cgroups")
for line in open("/proc/self/mountinfo"):
    if "redoma-run" in line or " - cgroup" in line:
        print("ESCAPED: a mount tells of", line.strip())
print("CONTAINED")

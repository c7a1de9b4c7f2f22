# claim: no folder of the host appears in the mount table but those of the runtime
# weaken: canary
import sys
canary = sys.argv[1]
ours = {"/", "/usr", "/etc", "/opt/python", "/opt/redoma/inside", "/mnt/data", "/tmp", "/home/sandbox", "/proc", "/usr/local"}
for name in ("mountinfo", "mounts", "mountstats"):
    for line in open("/proc/self/" + name):
        if canary in line:
            print("ESCAPED:", name, line)
for line in open("/proc/self/mountinfo"):
    place = line.split()[4]
    if place not in ours and not place.startswith(("/dev", "/proc/", "/lib", "/bin", "/sbin")):
        print("ESCAPED: something is mounted at", place)
print("CONTAINED")

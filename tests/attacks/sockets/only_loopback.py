# claim: the one network device is a loopback of the sandbox's own, and no route leads away from it
# weaken: net_namespace
import socket

devices = [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]]
print("devices:", devices)
if devices != ["lo"]:
    print("ESCAPED: there are the devices", devices)
routes = open("/proc/net/route").readlines()[1:]
if routes:
    print("ESCAPED: a route", routes[0].split()[:3])
for line in open("/proc/net/ipv6_route"):
    if not line.rstrip().endswith(" lo"):
        print("ESCAPED: a route", line.split()[0], line.split()[-1])
for number in range(1, 64):
    try:
        name = socket.if_indextoname(number)
    except OSError:
        continue
    print("ESCAPED: device" if name != "lo" else "device", number, name)
print("CONTAINED")

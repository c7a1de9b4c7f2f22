# claim: the host's open sockets are not listed
# weaken: net_namespace
for table in ("tcp", "tcp6", "udp", "udp6", "udplite", "raw", "raw6", "unix", "packet"):
    try:
        lines = open(f"/proc/net/{table}").read().splitlines()[1:]
    except FileNotFoundError:
        continue
    print("ESCAPED: the table" if lines else "empty:", table, lines[:1])
print("CONTAINED")

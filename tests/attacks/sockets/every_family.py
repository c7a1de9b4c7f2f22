# claim: of all families and types of sockets there are only the ordinary local and internet ones
# weaken: seccomp
import errno
import socket

UNIX, INET, INET6 = 1, 2, 10
STREAM, DGRAM, RAW, RDM, SEQPACKET, DCCP, PACKET = 1, 2, 3, 4, 5, 6, 10
ORDINARY = {(UNIX, STREAM), (UNIX, DGRAM), (UNIX, SEQPACKET)}
ORDINARY |= {(family, kind) for family in (INET, INET6) for kind in (STREAM, DGRAM)}

refused = 0
looked_at = set()
for family in range(64):
    for kind in (STREAM, DGRAM, RAW, RDM, SEQPACKET, DCCP, PACKET):
        if (family, kind) in ORDINARY:
            continue
        try:
            socket.socket(family, kind).close()
            print("ESCAPED: a socket of family", family, "and type", kind)
        except OSError as error:
            refused += error.errno == errno.EPERM
            if error.errno != errno.EPERM:
                looked_at.add(family)
if looked_at:
    print("ESCAPED: the kernel itself was asked for the families", sorted(looked_at))
print("refused:", refused)
print("CONTAINED")

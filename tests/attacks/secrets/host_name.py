# claim: neither the host's name nor its NIS domain name can be seen
# weaken: uts_namespace
import ctypes, os
buffer = ctypes.create_string_buffer(6 * 65)
ctypes.CDLL(None).uname(buffer)
node, domain = (buffer.raw[index * 65:(index + 1) * 65].split(b"\0")[0] for index in (1, 5))
if node != b"redoma":
    print("ESCAPED: the host is", node)
if domain != b"(none)":
    print("ESCAPED: the domain is", domain)
print("CONTAINED")

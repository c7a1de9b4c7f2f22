# claim: names that are not UTF-8 are collected as they are, and nothing is followed because of them
# weaken: harvest
import os, sys
secret = os.fsencode(sys.argv[1]) + b"/secret.txt"
for name in (b"\xff", b"\xc0\xae\xc0\xae", b"\xe2\x82", b"caf\xe9", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", bytes(range(1, 47)), bytes(range(128, 256))):
    os.symlink(secret, name)
    os.mkdir(name + b".d")
    open(name + b".d/" + name, "wb").write(b"harmless")
    open(name + b".txt", "wb").write(b"harmless")
print("CONTAINED")

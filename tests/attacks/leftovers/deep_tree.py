# claim: a tree deeper than anybody needs is neither walked to its end nor a way to be followed into
# weaken: harvest
import os, sys
secret = sys.argv[1] + "/secret.txt"
for depth in range(2000):
    os.mkdir("d")
    os.chdir("d")
    if depth in (10, 60, 63, 64, 65, 1999):
        os.symlink(secret, "link")
        open("file", "w").write("harmless")
print("CONTAINED")

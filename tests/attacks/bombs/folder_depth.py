# claim: folders in folders end at the files limit, however long their path has become, and nobody stumbles over them
# weaken: limits
# flags: --files 1000
# hits: files
import os

depth = 0
try:
    while depth < 4000:
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
        depth += 1
except OSError as error:
    print("refused:", error)
print("depth:", depth)
if depth > 1000:
    print("ESCAPED:", depth, "folders in 1000")
print("CONTAINED")

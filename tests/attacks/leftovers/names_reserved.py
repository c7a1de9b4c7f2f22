# claim: names that redoma uses itself (`.redoma-…`) can't be used to slip something in or to collide with it
# weaken: harvest
import os, sys
canary = sys.argv[1]
# What a temporary file in the folder of results is called while it is written; the number is the supervisor's.
for number in range(1, 200):
    os.symlink(canary + "/victim.txt", f".redoma-{number}.part")
os.symlink(canary, ".redoma-hop")
os.mkdir(".redoma-folder")
os.symlink(canary + "/secret.txt", ".redoma-folder/link")
os.symlink(".redoma-hop/secret.txt", "result")
os.mkdir("folder")
os.mkdir("folder/.redoma-1.part")
open("folder/file", "w").write("harmless")
print("CONTAINED")

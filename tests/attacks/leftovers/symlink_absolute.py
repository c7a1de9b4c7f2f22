# claim: a symbolic link to a host file is not followed when results are collected
# weaken: harvest
import os, sys
canary = sys.argv[1]
os.symlink(canary + "/secret.txt", "result.txt")
os.mkdir("plots")
os.symlink(canary + "/secret.txt", "plots/plot.png")
os.symlink("/etc/shadow", "shadow")
print("CONTAINED")

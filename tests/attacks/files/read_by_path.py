# claim: a file of the host can't be read by its path
# weaken: canary,landlock
import sys
canary = sys.argv[1]
try:
    print("ESCAPED: read", open(canary + "/secret.txt").read())
except OSError as error:
    print("refused:", error)
print("CONTAINED")

# claim: an absolute symbolic link to a host file leads nowhere
# weaken: canary,landlock
import os, sys
canary = sys.argv[1]
for folder in ("/mnt/data", "/tmp", "/home/sandbox", "/dev/shm"):
    link = folder + "/link"
    os.symlink(canary, link)
    try:
        print("ESCAPED: through", link, open(link + "/secret.txt").read())
    except OSError as error:
        print("refused:", link, error.strerror)
print("CONTAINED")

# claim: an input file, or a folder over it, replaced by a link is not followed, and the caller's file stays as it is
# flags: --in /etc/hosts --in /etc/passwd
# weaken: harvest
import os, sys
os.unlink("hosts")
os.symlink(sys.argv[1] + "/secret.txt", "hosts")
os.rename("passwd", "moved")
os.symlink("/etc/passwd", "passwd")
os.mkdir("folder")
os.symlink("../hosts", "folder/hosts")
print("CONTAINED")

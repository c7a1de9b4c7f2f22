# claim: hard links to symbolic links, and hard links to files, are left where they are
# weaken: harvest
import os, sys
os.symlink(sys.argv[1] + "/secret.txt", "link")
os.link("link", "another-name-of-the-link", follow_symlinks=False)
open("file", "w").write("twice")
os.link("file", "another-name-of-the-file")
print("CONTAINED")

# claim: files and folders without any rights are collected all the same, and hide no link
# weaken: harvest
import os, sys
secret = sys.argv[1] + "/secret.txt"
for mode in (0o000, 0o444, 0o111, 0o222):
    folder = f"folder{mode:o}"
    os.mkdir(folder)
    open(folder + "/file", "w").write("harmless")
    os.symlink(secret, folder + "/link")
    os.chmod(folder + "/file", mode)
    os.chmod(folder, mode)
    open(f"file{mode:o}", "w").write("harmless")
    os.chmod(f"file{mode:o}", mode)
print("CONTAINED")

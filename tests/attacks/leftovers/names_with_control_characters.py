# claim: newlines, escape sequences and the like in names change nothing about what is collected
# weaken: harvest
import os, sys
secret = sys.argv[1] + "/secret.txt"
for name in ("two\nlines", "\n", "\r", "\x1b[2Jcleared", "tab\there", "\x7f", "\x01", " ", "  leading", "trailing ", "\u202etxt.exe", "\u2028"):
    os.symlink(secret, name)
    os.mkdir("folder " + name)
    open("folder " + name + "/file " + name, "w").write("harmless")
print("CONTAINED")

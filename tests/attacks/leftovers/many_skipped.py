# claim: thousands of things that are not collected neither hide what is nor get followed
# weaken: harvest
import os, sys
for index in range(4000):
    os.symlink(sys.argv[1] + "/secret.txt" if index == 3999 else "nowhere", f"link{index:04}")
open("result", "w").write("kept")
print("CONTAINED")

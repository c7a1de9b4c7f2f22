# claim: the program's own file, replaced by a link at the very end, is not followed
# weaken: harvest
import atexit, os, sys
names = [os.path.abspath(__file__), "data.csv"]

def replace():
    for name in names:
        os.unlink(name)
        os.symlink(sys.argv[1] + "/secret.txt", name)

open("data.csv", "w").write("1,2,3")
atexit.register(replace)
print("CONTAINED")

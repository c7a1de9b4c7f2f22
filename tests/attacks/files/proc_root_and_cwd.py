# claim: no process's root, working folder or program in /proc leads to the host's files
# weaken: canary,landlock
import glob, sys
canary = sys.argv[1]
ways = glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/task/*/root") + ["/proc/1/root", "/proc/thread-self/root"]
ways += [way + "/../../../.." for way in glob.glob("/proc/[0-9]*/cwd") + ["/proc/1/cwd", "/proc/self/exe/.."]]
for way in ways:
    try:
        print("ESCAPED: through", way, open(way + canary + "/secret.txt").read())
    except OSError as error:
        print("refused:", way, error.strerror)
print("CONTAINED")

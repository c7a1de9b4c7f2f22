# claim: when memory ends code is the first to go: it can't lower its score, nor raise that of others
# weaken: landlock
import os

own = int(open("/proc/self/oom_score_adj").read())
if own != 1000:
    print("ESCAPED: the score is", own)
for path in ("/proc/self/oom_score_adj", "/proc/self/oom_adj", "/proc/1/oom_score_adj"):
    for value in ("0", "-1000", "-17"):
        try:
            with open(path, "w") as file:
                file.write(value)
            print("ESCAPED: wrote", value, "to", path)
        except OSError as error:
            print("refused:", path, value, error.strerror)
if os.fork() == 0:
    print("a child has", open("/proc/self/oom_score_adj").read().strip(), flush=True)
    os._exit(0)
os.wait()
print("CONTAINED")

# claim: nothing in a process's own folder of /proc can be written: not its memory, not its maps of ids, not its OOM score
# weaken: landlock
import os
for name in ("mem", "oom_score_adj", "uid_map", "gid_map", "setgroups", "timens_offsets", "attr/current", "comm",
             "autogroup", "clear_refs", "coredump_filter", "make-it-fail", "timerslack_ns", "sched", "loginuid"):
    for folder in ("/proc/self/", f"/proc/{os.getpid()}/task/{os.getpid()}/"):
        try:
            os.open(folder + name, os.O_WRONLY)
            print("ESCAPED:", folder + name, "is open for writing")
        except OSError as error:
            print("refused:", folder + name, error.strerror)
print("CONTAINED")

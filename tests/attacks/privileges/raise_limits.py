# claim: the per-process limits can't be raised, by the process itself, through a child or through a program
# weaken: rlimits
import os
import resource
import subprocess

KIB = 1024
# What a sandbox may have at most, whatever its profile says.
MOST = {
    "RLIMIT_CORE": 1, "RLIMIT_MEMLOCK": 64 * KIB, "RLIMIT_MSGQUEUE": 64 * KIB, "RLIMIT_RTPRIO": 0, "RLIMIT_NICE": 0,
    "RLIMIT_SIGPENDING": 1024, "RLIMIT_STACK": 64 * KIB * KIB,
}
ALL = [name for name in dir(resource) if name.startswith("RLIMIT_") and name not in ("RLIMIT_OFILE",)]


def attempt(name, how, raise_it, pid):
    number = getattr(resource, name)
    hard = resource.getrlimit(number)[1]
    if hard == resource.RLIM_INFINITY:
        return
    for wanted in (hard + 1, resource.RLIM_INFINITY):
        try:
            raise_it(number, wanted)
        except (OSError, ValueError) as error:
            print("refused:", name, how, error)
            continue
        if resource.prlimit(pid, number)[1] not in range(hard + 1):
            print("ESCAPED: raised", name, how)


child = os.fork()
if child == 0:
    os.read(os.pipe()[0], 1)
for name in ALL:
    attempt(name, "of oneself", lambda number, wanted: resource.setrlimit(number, (wanted, wanted)), 0)
    attempt(name, "of a child", lambda number, wanted: resource.prlimit(child, number, (wanted, wanted)), child)
os.kill(child, 9)
for name, most in MOST.items():
    soft, hard = resource.getrlimit(getattr(resource, name))
    if not 0 <= soft <= hard <= most:
        print("ESCAPED:", name, "is", soft, hard)
for option in ("--core=unlimited", "--memlock=unlimited", "--nofile=1048576:1048576", "--nproc=100000:100000"):
    code = subprocess.run(["prlimit", option, "true"], stderr=subprocess.DEVNULL).returncode
    print("refused:" if code else "ESCAPED:", "prlimit", option)
print("CONTAINED")

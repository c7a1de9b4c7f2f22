# claim: the memory of the sandbox's init, a copy of redoma's own with the host's environment in it, can't be read
# weaken: init,hidepid,seccomp
import ctypes, os, re
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"ptrace": 101, "process_vm_readv": 310}
PTRACE_SEIZE = 0x4206
for name in ("environ", "auxv", "maps", "mem", "root", "cwd", "fd", "exe", "map_files", "pagemap"):
    try:
        os.listdir("/proc/1/" + name) if name in ("fd", "map_files") else os.open("/proc/1/" + name, os.O_RDONLY)
        print("ESCAPED: /proc/1/" + name + " is open")
    except OSError as error:
        print("refused:", name, error.strerror)
try:
    print(open("/proc/1/environ").read().replace("\0", "\n"))
    memory = open("/proc/1/mem", "rb", 0)
    for line in open("/proc/1/maps"):
        if "[stack]" in line or "[heap]" in line:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            memory.seek(start)
            print("ESCAPED:", re.findall(rb"SECRET[ -~]*", memory.read(end - start))[:3])
except OSError as error:
    print("refused:", error)
if libc.syscall(NUMBERS["ptrace"], PTRACE_SEIZE, 1, 0, 0) == 0:
    print("ESCAPED: init is traced")
else:
    print("refused: ptrace", os.strerror(ctypes.get_errno()))
print("CONTAINED")

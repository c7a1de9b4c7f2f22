# claim: no process has a capability in any of its five sets, and exec brings none
# weaken: capabilities
import subprocess

SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
WAYS = {
    "the interpreter": open("/proc/self/status").read(),
    "a program": subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout,
    "a new session": subprocess.run(["setsid", "cat", "/proc/self/status"], capture_output=True, text=True).stdout,
}
for way, status in WAYS.items():
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    held = {name: fields[name] for name in SETS if int(fields[name], 16) != 0}
    print(f"ESCAPED: {way} has {held}" if held else f"none: {way}")
print("CONTAINED")

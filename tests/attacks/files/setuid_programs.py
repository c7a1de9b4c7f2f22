# claim: set-user-id and set-group-id programs, the host's and one's own, run without any gain
# weaken: capabilities,landlock
import os, shutil, stat, subprocess
shutil.copy("/usr/bin/cat", "own")
os.chmod("own", 0o6755)
programs = [os.path.abspath("own")]
for folder in ("/usr/bin", "/usr/sbin", "/usr/lib/openssh", "/usr/libexec"):
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        path = folder + "/" + name
        if os.path.isfile(path) and os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID):
            programs.append(path)
print("set-id programs:", len(programs))
for path in programs[1:]:
    # No arguments that do anything: only whether the kernel grants the id, as seen from outside.
    child = subprocess.Popen([path, "--version"], stdin=-1, stdout=-1, stderr=-1)
    try:
        if os.stat(f"/proc/{child.pid}").st_uid == 0:
            print("ESCAPED:", path, "runs as root")
    except FileNotFoundError:
        pass
    # The id is granted, or not, before it begins; some take ten seconds to say their version.
    child.kill()
    child.communicate()
status = subprocess.run([programs[0], "/proc/self/status"], capture_output=True, text=True).stdout
fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
if fields["NoNewPrivs"] != "1":
    print("ESCAPED: a set-id program may gain privileges")
for name in ("CapPrm", "CapEff", "CapBnd"):
    if int(fields[name], 16):
        print("ESCAPED: a set-id program has", name, fields[name])
if set((fields["Uid"] + " " + fields["Gid"]).split()) != {"1000"}:
    print("ESCAPED: ids", fields["Uid"], fields["Gid"])
print("CONTAINED")

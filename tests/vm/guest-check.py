#!/usr/bin/python3
"""Run inside the guest: is everything there that the sandbox is built on?

Prints one line for each check and fails if any check does.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
import time

CGROUP = "/sys/fs/cgroup"
failures = 0


def check(name, passed, detail=""):
    global failures
    failures += not passed
    print(f"{'ok  ' if passed else 'FAIL'} {name}{': ' if detail else ''}{detail}", flush=True)


def read(path):
    with open(path) as file:
        return file.read().strip()


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def shell(script):
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True)
    return done.returncode == 0, (done.stdout + done.stderr).strip().replace("\n", " | ")


def check_landlock():
    create_ruleset, want_version = 444, 1
    abi = ctypes.CDLL(None, use_errno=True).syscall(create_ruleset, None, 0, want_version)
    check("landlock", abi >= 1, f"ABI {abi}; lsm {read('/sys/kernel/security/lsm')}")


def check_namespaces():
    check("user namespace", *shell("unshare -Ur id -u"))
    check("all namespaces", *shell("unshare -Urmpfinu -C --mount-proc sh -c 'ip link set lo up && echo $$'"))


def check_overlay():
    with tempfile.TemporaryDirectory() as folder:
        mount = (
            f"cd {folder}; mount -t tmpfs t .; cd {folder}; mkdir upper work merged lower;"
            "mkdir lower/d; echo 1 >lower/d/f; echo 1 >lower/g;"
            "mount -t overlay -o userxattr,lowerdir=lower,upperdir=upper,workdir=work o merged; cd merged;"
        )
        for name, script in {
            "mount, write, delete": "echo 2 >>d/f; echo 3 >new; rm g; cat d/f; ls",
            "rename a lower file": "mv g h; cat h",
        }.items():
            check(f"overlay in a user namespace: {name}", *shell(f"unshare -Urm sh -ec '{mount} {script}'"))
        check_opaque_folders(mount)
        over_root = mount.replace("lowerdir=lower", "lowerdir=/usr")
        check(
            "overlay in a user namespace: over the guest's own overlay root",
            *shell(f"unshare -Urm sh -ec '{over_root} echo 1 >new; test -d bin; echo yes'"),
        )
    with tempfile.TemporaryDirectory(dir="/var/tmp") as disk:
        on_disk = mount.replace(folder, disk).replace("mount -t tmpfs t .;", "")
        check(
            "overlay in a user namespace: on disk (/var/tmp), deletes a lower folder",
            *shell(f"unshare -Urm sh -ec '{on_disk} rm -r d; mkdir d; ls -A d | wc -l'"),
        )


def check_opaque_folders(mount):
    """Deleting a lower folder needs user.* attributes on the upper side, which
    tmpfs has only since Linux 6.6. The kernel's answer before that is EIO."""
    passed, detail = shell(f"unshare -Urm sh -ec '{mount} rm -r d; mkdir d; ls -A d | wc -l'")
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    expected = release >= (6, 6)
    name = "deletes a lower folder" if expected else "cannot delete a lower folder (before Linux 6.6)"
    check(f"overlay in a user namespace: {name}", passed == expected, detail)


def check_cgroups():
    controllers = read(f"{CGROUP}/cgroup.controllers")
    check("one unified hierarchy", len(read("/proc/self/cgroup").splitlines()) == 1, controllers)
    own = CGROUP + read("/proc/self/cgroup").removeprefix("0::").rstrip("/")
    if own != CGROUP:
        # Only the root may hold both processes and controlled children.
        os.mkdir(f"{own}/init")
        for pid in read(f"{own}/cgroup.procs").split():
            write(f"{own}/init/cgroup.procs", pid)
    write(f"{own}/cgroup.subtree_control", "+cpu +io +memory +pids")
    enabled = read(f"{own}/cgroup.subtree_control")
    check("controllers enabled for children", enabled.split() == ["cpu", "io", "memory", "pids"], own)

    job = f"{own}/job"
    os.mkdir(job)
    limits = {"memory.max": "33554432", "memory.swap.max": "0", "pids.max": "4", "cpu.max": "20000 100000"}
    for name, value in limits.items():
        write(f"{job}/{name}", value)
    check("limits written", all(read(f"{job}/{name}") == value for name, value in limits.items()), str(limits))

    inside = f"echo 0 >{job}/cgroup.procs; "
    hog = subprocess.run(["sh", "-c", inside + "exec /usr/bin/python3 -c 'x = b\"1\" * (64 << 20)'"])
    events = read(f"{job}/memory.events").replace("\n", ", ")
    check("memory.max ends a hog", hog.returncode == -9, events)
    forks = subprocess.run(
        ["sh", "-c", inside + "for i in 1 2 3 4 5 6; do sleep 5 & done; wait"], capture_output=True, text=True
    )
    check("pids.max refuses a fork", forks.returncode != 0, forks.stderr.strip() + "; " + read(f"{job}/pids.events"))
    subprocess.run(["sh", "-c", inside + "timeout 2 sh -c 'while :; do :; done'"])
    throttled = dict(line.split() for line in read(f"{job}/cpu.stat").splitlines())["nr_throttled"]
    check("cpu.max throttles", int(throttled) > 0, f"nr_throttled {throttled}")

    check_disk_limit(job)

    sleeper = subprocess.Popen(["sh", "-c", inside + "exec sleep 1000"])
    while not read(f"{job}/cgroup.procs"):
        time.sleep(0.05)
    write(f"{job}/cgroup.freeze", "1")
    write(f"{job}/cgroup.kill", "1")
    check("cgroup.kill", sleeper.wait(timeout=30) == -9)
    while "populated 1" in read(f"{job}/cgroup.events"):
        time.sleep(0.05)
    os.rmdir(job)
    check("cgroup removed", not os.path.exists(job))


def check_disk_limit(job):
    number = os.stat("/var/tmp").st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    write(f"{job}/cpu.max", "max")
    write(f"{job}/io.max", f"{device} wbps=1048576")
    start = time.monotonic()
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        dd = f"exec dd if=/dev/zero of={file.name} bs=1M count=4 oflag=direct status=none"
        subprocess.run(["sh", "-c", f"echo 0 >{job}/cgroup.procs; {dd}"], check=True)
    took = time.monotonic() - start
    check("io.max slows writes to the disk", took > 2.5, f"4 MiB at 1 MiB/s in {took:.1f} s; {read(f'{job}/io.max')}")


def check_delegation_ends():
    try:
        write(f"{CGROUP}/user-1000/memory.max", "1048576")
        check("the delegated cgroup's own limits are the administrator's", False)
    except PermissionError as refusal:
        check("the delegated cgroup's own limits are the administrator's", True, str(refusal))


print(f"kernel {os.uname().release}, uid {os.getuid()}")
check_landlock()
check_namespaces()
check_overlay()
check_cgroups()
if os.getuid() != 0:
    check_delegation_ends()
sys.exit(1 if failures else 0)

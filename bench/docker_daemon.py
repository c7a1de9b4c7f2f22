"""A Docker daemon of our own, with everything that it keeps below the cache, and an image that nobody has to pull.

The image is an empty root with places to mount things on; `/usr` and the runtime come in as read-only mounts, so that the
Python inside is the very one that the other contenders run.
"""

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import peers
from processes import Failed, Server

IMAGE = "redoma-bench"
# At the top of the hierarchies: a relative one would be made within the group that we happen to run in.
CGROUP = "/redoma-bench-docker"


def mounts_below(*folders):
    with open("/proc/self/mountinfo") as lines:
        places = [line.split()[4] for line in lines]
    return [place for place in places if any(place.startswith(folder + "/") for folder in folders)]


class DockerDaemon(Server):
    def __init__(self, host):
        self.host = host
        daemon = shutil.which("dockerd", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        if not daemon:
            raise Failed("docker.io is not installed")
        if os.geteuid() != 0:
            raise Failed("a Docker daemon of our own needs root")
        # The client that came with the daemon, if there are several.
        beside = str(Path(daemon).parent).replace("sbin", "bin") + "/docker"
        self.client = beside if os.path.exists(beside) else peers.installed("docker")
        data = host.cache / "docker"
        data.mkdir(exist_ok=True)
        # Socket names must be short, and the cache may be deep down.
        self.run_folder = tempfile.mkdtemp(prefix="redoma-bench-docker-", dir="/run" if os.access("/run", os.W_OK) else None)
        socket = f"unix://{self.run_folder}/docker.sock"
        Path(self.run_folder, "daemon.json").write_text("{}")
        command = [daemon, "--config-file", f"{self.run_folder}/daemon.json", "--data-root", str(data / "data"), "--host", socket]
        command += ["--exec-root", f"{self.run_folder}/exec", "--pidfile", f"{self.run_folder}/docker.pid", "--cgroup-parent", CGROUP]
        command += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
        path = os.environ["PATH"] + ":/usr/sbin:/usr/bin:/sbin:/bin"
        self.environment = {"PATH": path, "HOME": str(host.scratch), "DOCKER_HOST": socket}
        try:
            super().__init__(command, {"PATH": path, "HOME": str(host.scratch)}, str(data / "daemon.log"))
            self.wait_until(lambda: self.ask("version").returncode == 0, timeout=30)
            self.make_image()
        except Failed:
            self.stop()
            raise

    def ask(self, *arguments, **more):
        return subprocess.run([self.client, *arguments], env=self.environment, capture_output=True, timeout=60, **more)

    def make_image(self):
        root = self.host.folder("docker-root")
        peers.empty_root(self.host, root)
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.add(root, arcname=".")
        done = self.ask("import", "-", IMAGE, input=archive.getvalue())
        if done.returncode != 0:
            raise Failed("docker import: " + done.stderr.decode(errors="replace"))
        self.ask("image", "prune", "--force")  # those of earlier runs

    def command(self, program):
        command = [self.client, "run", "--rm", "--network", "none", "--user", "1000:1000", "--cap-drop", "ALL"]
        command += ["--security-opt", "no-new-privileges", "--read-only", "--tmpfs", "/tmp", "--tmpfs", "/mnt/data"]
        command += ["-v", "/usr:/usr:ro", "-v", f"{self.host.runtime}/python:/opt/python:ro", "--workdir", "/mnt/data"]
        for name, value in peers.INSIDE_ENVIRONMENT.items():
            command += ["--env", f"{name}={value}"]
        return [*command, IMAGE, *program]

    def last_words(self):
        """The daemon logs a lot; what it died of is the last line that is an error."""
        lines = super().last_words().splitlines()
        bad = [line for line in lines if "level=" not in line or "level=fatal" in line or "level=error" in line]
        return "\n".join(bad or lines)

    def stop(self, patience=15):
        if self in Server.running:
            super().stop(patience)
        # A daemon that could not start leaves its data folder mounted on itself.
        for place in reversed(mounts_below(str(self.host.cache / "docker"), self.run_folder)):
            subprocess.run(["umount", place], env=self.environment, stderr=subprocess.DEVNULL, timeout=30)
        shutil.rmtree(self.run_folder, ignore_errors=True)
        # One below the top for v1, at the top for v2.
        for folder in (*Path("/sys/fs/cgroup").glob("*" + CGROUP), Path("/sys/fs/cgroup" + CGROUP)):
            try:
                folder.rmdir()
            except OSError:
                pass  # a container is still going; the kernel keeps the folder until it is gone

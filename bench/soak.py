"""Very many runs against one server, and the figures that must stay flat: `make soak`, or
`bench/soak.py --runs 200000 --redoma target/release/redoma --data-dir DIR`.

Starts a server on an empty data folder that shares DIR's runtimes, sends runs from a few clients over HTTP, and prints at each
checkpoint what the server and the host's kernel hold: resident memory, threads and open files of the server, bytes on disk per
run, slab memory, and the objects of the caches that removed files, folders and namespaces leave behind.

The host's figures count everything on the machine. Run it alone.
"""

import argparse
import http.client
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

CACHES = ["dentry", "inode_cache", "kernfs_node_cache", "proc_inode_cache", "shmem_inode_cache", "sock_inode_cache", "net_namespace"]
READY_WITHIN = 120


def meminfo():
    with open("/proc/meminfo") as file:
        return {line.split(":")[0]: int(line.split()[1]) for line in file}


def slab_objects():
    """Cache → objects in use; empty for all but root."""
    try:
        with open("/proc/slabinfo") as file:
            return {line.split()[0]: int(line.split()[1]) for line in file.readlines()[2:]}
    except PermissionError:
        return {}


def memory_groups():
    """Memory control groups that the kernel keeps, also those whose folder is gone."""
    with open("/proc/cgroups") as file:
        return next((int(line.split()[2]) for line in file if line.startswith("memory\t")), 0)


def status(pid):
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def disk_use(folder):
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


class Soak:
    def __init__(self, options):
        self.options = options
        self.folder = Path(tempfile.mkdtemp(prefix="soak-", dir=options.data_dir))
        os.symlink(Path(options.data_dir).resolve() / "runtimes", self.folder / "runtimes")
        self.key = secrets.token_hex(16)
        self.done = 0
        self.failed = []
        self.left = options.runs
        self.lock = threading.Lock()

    def start(self):
        environment = {"PATH": "/usr/bin:/bin", "REDOMA_API_KEY": self.key}
        (self.folder / "redoma.toml").write_text(self.options.config)
        self.log = open(self.folder / "log", "wb")
        command = [self.options.redoma, "serve", "--listen", f"127.0.0.1:{self.options.port}", "--data-dir", str(self.folder)]
        self.server = subprocess.Popen(command, env=environment, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline and self.server.poll() is None:
            try:
                if self.exchange(self.connect(), "GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit(f"the server is not ready: {(self.folder / 'log').read_text()[-2000:]}")

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.options.port, timeout=120)

    def exchange(self, connection, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        connection.request(method, path, body and json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def client(self):
        connection = self.connect()
        while True:
            with self.lock:
                if self.left <= 0:
                    return
                self.left -= 1
            try:
                code, answer = self.exchange(connection, "POST", self.options.path, {"language": "py", "code": "print(1)"})
                problem = None if code in (200, 201) else f"{code} {answer[:200]!r}"
            except (OSError, http.client.HTTPException) as error:
                problem, connection = repr(error), self.connect()
            with self.lock:
                self.done += 1
                if problem:
                    self.failed.append(problem)

    def figures(self):
        memory, slab, server = meminfo(), slab_objects(), status(self.server.pid)
        row = {
            "runs": self.done,
            "failed": len(self.failed),
            "RSS KiB": int(server["VmRSS"].split()[0]),
            "threads": int(server["Threads"]),
            "files": len(os.listdir(f"/proc/{self.server.pid}/fd")),
            "disk B/run": disk_use(self.folder) // max(self.done, 1),
            "slab KiB": memory["Slab"],
            "unreclaimable": memory["SUnreclaim"],
            "vmalloc": memory["VmallocUsed"],
            "percpu": memory["Percpu"],
            "memory groups": memory_groups(),
        }
        return row | {name: slab.get(name, 0) for name in CACHES}

    def run(self):
        self.start()
        clients = [threading.Thread(target=self.client) for _ in range(self.options.clients)]
        began = time.monotonic()
        rows = [self.figures()]
        print("\t".join(rows[0]), flush=True)
        print("\t".join(map(str, rows[0].values())), flush=True)
        for client in clients:
            client.start()
        for number in range(1, self.options.checkpoints + 1):
            goal = self.options.runs * number // self.options.checkpoints
            while self.done < goal:
                time.sleep(0.05)
            rows.append(self.figures())
            print("\t".join(map(str, rows[-1].values())), flush=True)
        for client in clients:
            client.join()
        print(f"{self.done / (time.monotonic() - began):.0f} runs/s; first failures: {self.failed[:3]}")
        # The first fifth fills pools and caches.
        first, last = rows[max(1, len(rows) // 5)], rows[-1]
        runs = max(1, last["runs"] - first["runs"])
        print(f"from run {first['runs']} to {last['runs']}, per run:", end="")
        for name in ["RSS KiB", "slab KiB", "unreclaimable", "vmalloc", "percpu"]:
            print(f" {name} {(last[name] - first[name]) * 1024 / runs:.0f} B;", end="")
        for name in CACHES:
            print(f" {name} {(last[name] - first[name]) / runs:.3f};", end="")
        print()
        return not self.failed

    def stop(self):
        if hasattr(self, "server"):
            self.server.terminate()
            self.server.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redoma", default="target/release/redoma")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--checkpoints", type=int, default=20)
    parser.add_argument("--port", type=int, default=8099)
    parser.add_argument("--path", default="/api/v1/executions")
    parser.add_argument("--config", default="", help="text of the server's redoma.toml")
    soak = Soak(parser.parse_args())
    try:
        sys.exit(0 if soak.run() else 1)
    finally:
        soak.stop()


main()

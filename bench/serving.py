"""A `redoma serve` of one's own: on a port that is free, on a data folder that goes away with it.

The folder lies in --data-dir, whose runtime it shares: on the disk that a real server would use, for bringing files there is
part of what is measured.
"""

import json
import os
import secrets
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from http_client import Connection, Requests
from processes import Failed, Server, descendants

READY_WITHIN = 120


class RedomaServer(Server):
    """`address` is where it listens, `key` opens everything, `requests` makes requests for it."""

    def __init__(self, host, folder, name):
        self.key = secrets.token_hex(16)
        log = str(host.cache / f"serve-{name}.log")
        command = [host.redoma, "serve", "--listen", "127.0.0.1:0", "--log", "json", "--data-dir", str(folder)]
        start = time.monotonic()
        super().__init__(command, host.environment(REDOMA_API_KEY=self.key), log)
        try:
            self.address = self.listening(READY_WITHIN)
            self.requests = Requests(self.address, self.key)
            self.wait_until(self.is_ready, READY_WITHIN)
        except Failed as failure:
            errors = [str(entry.get("error")) for entry in self.entries() if entry.get("level") == "ERROR"]
            self.stop()
            raise Failed(f"redoma serve did not start: {(errors or [failure])[-1]}") from failure
        self.ready_after = time.monotonic() - start

    def listening(self, within):
        """The address, which only its log tells."""
        found = []

        def said():
            for entry in self.entries():
                if entry.get("message") == "listening":
                    host, _, port = entry["address"].rpartition(":")
                    found.append((host, int(port)))
            return found

        self.wait_until(said, within)
        return found[0]

    def is_ready(self):
        connection = Connection(self.address)
        try:
            is_ready = connection.exchange(self.requests.get("/readyz"))[0].status == 200
        except Failed:
            return False
        finally:
            connection.close()
        if not is_ready and any(entry.get("level") == "ERROR" for entry in self.entries()):
            raise Failed("it will not be ready")
        return is_ready

    def entries(self):
        """The lines of its log so far, as far as they are JSON."""
        with open(self.log, "rb") as log:
            for line in log:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # not written to its end yet, or from before it could write JSON
                if isinstance(entry, dict):
                    yield entry

    def complaints(self):
        """A remark about warnings and errors in its log, if there are any."""
        lines = [entry for entry in self.entries() if entry.get("level") in ("WARN", "ERROR")]
        if not lines:
            return []
        last = {name: value for name, value in lines[-1].items() if name != "timestamp"}
        return [f"The server's log has {len(lines)} warnings and errors, the last one: `{json.dumps(last)[:300]}`"]

    def tree(self):
        return {self.pid, *descendants(self.pid)}


@contextmanager
def data_folder(host, config=""):
    """A data folder that shares the runtime, and is removed in the end. `config` is the text of its redoma.toml."""
    folder = Path(tempfile.mkdtemp(prefix="bench-serve-", dir=host.data_dir))
    try:
        os.symlink(os.path.join(host.data_dir, "runtimes"), folder / "runtimes")
        if config:
            (folder / "redoma.toml").write_text(config)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(host, folder, name, patience=15):
    """A server that is ready, and ended in the end: with force if it takes longer than `patience`, in seconds."""
    server = RedomaServer(host, folder, name)
    try:
        yield server
    finally:
        server.stop(patience)


@contextmanager
def serving(host, name, config="", patience=15):
    """A server on an empty folder, but for its configuration."""
    with data_folder(host, config) as folder, running(host, folder, name, patience) as server:
        yield server

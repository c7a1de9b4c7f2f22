"""Who takes part: something with a name whose `once` does one fresh run, checks the answer, and returns how long it took."""

import base64
import http.client
import json
import secrets
import socket
import time
from pathlib import Path

from processes import Conversation, Failed, Server, run

PNG = b"\x89PNG\r\n\x1a\n"


class Contender:
    """`every` n-th round it takes part in: slow ones do so less often. `why_not` says why it can't take part at all."""

    def __init__(self, name, once=None, every=1, why_not=None, settle=None):
        self.name, self.once, self.every, self.why_not, self.settle = name, once, every, why_not, settle
        self.times, self.engine_times, self.failures, self.cold = [], [], [], 0

    def take(self):
        """One run. What fails is counted, and the last reason kept."""
        try:
            sample = self.once()
        except (Failed, KeyError, ValueError) as failure:  # the latter two: an answer that makes no sense
            self.failures.append(str(Failed(failure)))
            return
        finally:
            if self.settle:
                self.settle()
        self.times.append(sample["ms"])
        if "engine_ms" in sample:
            self.engine_times.append(sample["engine_ms"])
            self.cold += not sample["warm"]

    def forget(self):
        self.times, self.engine_times, self.failures, self.cold = [], [], [], 0


def contender(name, make, **more):
    """A contender from `make`, which returns its `once`; if it can't be made, it is listed with the reason."""
    try:
        return Contender(name, make(), **more)
    except Failed as failure:
        return Contender(name, why_not=str(failure))


def expect(output, expected):
    if output != expected:
        raise Failed(f"printed {output[:80]!r} instead of {expected!r}")


def command(argv, environment, expected, folder="/", picture=None):
    """A program that is started for the run. `picture` is a file that it leaves and that is read as part of the run."""

    def once():
        if picture:
            picture.unlink(missing_ok=True)
        output, elapsed = run(argv() if callable(argv) else argv, environment, folder)
        if picture:
            start = time.perf_counter()
            try:
                check_picture(picture.read_bytes())
            except OSError as error:
                raise Failed(error) from error
            elapsed += (time.perf_counter() - start) * 1000
        expect(output, expected)
        return {"ms": elapsed}

    return once


def check_picture(data):
    if not data.startswith(PNG):
        raise Failed("what came back is no PNG")


class Engine(Conversation):
    """Redoma's engine with its warm pools, driven over its standard input and output."""

    def __init__(self, host, name="engine"):
        command = [host.redoma, "bench", "--stdio", "--data-dir", host.data_dir]
        super().__init__(command, host.environment(), str(host.cache / f"{name}.log"))

    def fresh(self, language, code, expected, picture=None):
        """A `once` of a run in a fresh sandbox. `picture` is the name of a file whose bytes must come back."""
        request = {"op": "run", "lang": language, "code": code} | ({"out": True} if picture else {})

        def once():
            start = time.perf_counter()
            answer, elapsed = self.ask(request)
            if picture:
                data = [file.get("data", "") for file in answer["files"] if file["name"] == picture]
                if not data:
                    raise Failed(f"{picture} did not come back")
                check_picture(base64.b64decode(data[0]))
                elapsed = (time.perf_counter() - start) * 1000
            self.check(answer, expected)
            return {"ms": elapsed, "engine_ms": answer["engine_ms"], "warm": answer["warm"]}

        return once

    @staticmethod
    def check(answer, expected):
        if answer["exit_code"] != 0:
            raise Failed(answer.get("stderr") or f"exit code {answer['exit_code']}")
        expect(answer["stdout"], expected)

    def stats(self):
        return self.ask({"op": "stats"})[0]


class Jupyter(Conversation):
    """A new kernel per run. The time is until the output is there; shutting the kernel down is not counted."""

    def __init__(self, host):
        self.host = host
        python = host.cache / "jupyter/bin/python"
        if not python.exists():
            raise Failed("jupyter_client and ipykernel could not be installed from PyPI")
        script = str(Path(__file__).with_name("jupyter_kernels.py"))
        environment = host.environment(HOME=str(host.folder("jupyter")))
        super().__init__([str(python), script], environment, str(host.cache / "jupyter.log"), host.folder("jupyter"))

    def fresh(self, code, expected, picture=False):
        def once():
            start = time.perf_counter()
            answer, elapsed = self.ask({"op": "run", "code": code})
            if picture:
                check_picture(base64.b64decode("".join(answer["images"])))
                elapsed = (time.perf_counter() - start) * 1000
            expect(answer["stdout"], expected)
            return {"ms": elapsed}

        return once

    def with_packages(self, code):
        """The runtime's packages, for the kernel's own environment has none of them."""
        return f"import sys; sys.path.append({self.host.packages!r})\n{code}"

    def cell(self, code, first):
        """A `once` of a cell in a kernel that stays, and has run `first`. Timed there, without the pipe to it."""
        self.ask({"op": "open", "code": first})

        def once():
            return {"ms": self.ask({"op": "cell", "code": code})[0]["ms"]}

        return once

    def killed(self):
        """Milliseconds from asking the last kernel to end its own process until its successor has run a cell."""
        return self.ask({"op": "killed"})[0]["ms"]

    def close(self):
        self.ask({"op": "close"})


class OpenTerminal(Server):
    """Open Terminal's server on the loopback interface; a run is one request on a connection that stays open."""

    def __init__(self, host):
        program = host.cache / "open-terminal/bin/open-terminal"
        if not program.exists():
            raise Failed("open-terminal could not be installed from PyPI")
        home = host.folder("open-terminal")
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = found.getsockname()[1]
        key = secrets.token_hex(16)
        environment = host.environment(HOME=str(home), OPEN_TERMINAL_API_KEY=key)
        command = [str(program), "run", "--host", "127.0.0.1", "--port", str(port), "--cwd", str(home)]
        super().__init__(command, environment, str(host.cache / "open-terminal.log"), str(home))
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        try:
            self.wait_until(self.healthy, timeout=60)
        except Failed:
            self.stop()
            raise

    def request(self, method, path, body=None):
        try:
            self.connection.request(method, path, body, self.headers)
            answer = self.connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            raise Failed(error) from error

    def healthy(self):
        try:
            return self.request("GET", "/health")[0] == 200
        except Failed:
            return False

    def fresh(self, shell_command, expected):
        body = json.dumps({"command": shell_command})

        def once():
            start = time.perf_counter()
            status, text = self.request("POST", "/execute?wait=30", body)
            elapsed = (time.perf_counter() - start) * 1000
            if status != 200:
                raise Failed(f"HTTP {status}")
            answer = json.loads(text)
            if answer["exit_code"] != 0:
                raise Failed(f"exit code {answer['exit_code']}, status {answer['status']}")
            expect("".join(piece["data"] for piece in answer["output"]), expected)
            return {"ms": elapsed}

        return once

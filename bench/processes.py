"""Starting processes with little cost of our own, and ending every one of them.

Python's `subprocess` adds about a millisecond to each start, which would make the bare contender look slower than it is,
so what is timed is started with `posix_spawn`. Whatever outlives its own parent becomes our child (we are the
"subreaper"), so at the end everything below us can be found and ended by its process id.
"""

import ctypes
import json
import os
import re
import select
import signal
import subprocess
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None, use_errno=True)
NULL = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


class Failed(Exception):
    """A contender did not do what it should; the text is short enough for a table."""

    def __init__(self, text):
        lines = [line.strip() for line in str(text).splitlines() if line.strip()] or ["no reason given"]
        telling = next((line for line in lines if re.search(r"\berror\b|\bfatal\b", line, re.IGNORECASE)), lines[-1])
        super().__init__(telling.replace("|", "/")[:200])


def adopt_orphans():
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(argv, environment, folder="/", timeout=60.0):
    """Runs a command to its end; its output and the milliseconds from before its start until it was reaped."""
    os.chdir(folder)  # `posix_spawn` can't say where to start
    output, output_end = os.pipe2(os.O_CLOEXEC)
    errors = os.memfd_create("stderr", os.MFD_CLOEXEC)
    actions = [(os.POSIX_SPAWN_DUP2, NULL, 0), (os.POSIX_SPAWN_DUP2, output_end, 1), (os.POSIX_SPAWN_DUP2, errors, 2)]
    waiting = select.poll()
    waiting.register(output, select.POLLIN)
    text = b""
    try:
        start = time.perf_counter()
        try:
            pid = os.posix_spawn(argv[0], argv, environment, file_actions=actions)
        finally:
            os.close(output_end)
        while True:
            if not waiting.poll(max(0.0, start + timeout - time.perf_counter()) * 1000):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise Failed(f"no end within {timeout:.0f} s")
            piece = os.read(output, 1 << 16)
            if not piece:
                break
            text += piece
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        elapsed = (time.perf_counter() - start) * 1000
        if code != 0:
            said = os.pread(errors, 1 << 16, max(0, os.fstat(errors).st_size - (1 << 16))).decode(errors="replace")
            raise Failed(said.strip() or f"exit code {code}")
        return text, elapsed
    finally:
        os.close(output)
        os.close(errors)


def free_of_us():
    """In a new server's process: a group of its own, so that Ctrl-C is ours to handle, and an end if we are killed."""
    os.setsid()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class Server:
    """A program that stays while others are measured. `stop` ends it; `end_all` ends those that are left."""

    running = []

    def __init__(self, argv, environment, log, folder=None, pipes=False):
        self.log = log
        ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE} if pipes else {"stdin": subprocess.DEVNULL, "stdout": open(log, "wb")}
        with open(log, "ab") as errors:
            try:
                self.process = subprocess.Popen(
                    argv, env=environment, cwd=folder, stderr=errors, bufsize=0, preexec_fn=free_of_us, **ends
                )
            except OSError as error:
                raise Failed(error) from error
            finally:
                if not pipes:
                    ends["stdout"].close()
        self.pid = self.process.pid
        Server.running.append(self)

    def last_words(self):
        with open(self.log, "rb") as log:
            return log.read()[-2000:].decode(errors="replace")

    def wait_until(self, ready, timeout):
        deadline = time.monotonic() + timeout
        while not ready():
            if self.process.poll() is not None:
                raise Failed(self.last_words() or f"ended with code {self.process.returncode}")
            if time.monotonic() > deadline:
                raise Failed(f"not ready within {timeout:.0f} s")
            time.sleep(0.05)

    def stop(self, patience=15):
        """Asks nicely, then not: end of input (if it listens), SIGTERM, SIGKILL."""
        if self not in Server.running:
            return
        Server.running.remove(self)
        if self.process.stdin:
            self.process.stdin.close()
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                pass
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


class Conversation(Server):
    """A server that takes one JSON request per line and answers with one JSON line each, matched by `id`."""

    def __init__(self, argv, environment, log, folder=None, ready_within=120):
        open(log, "wb").close()
        super().__init__(argv, environment, log, folder, pipes=True)
        self.asked = 0
        self.unread = b""
        try:
            if not self.answers(ready_within)[0][0].get("ready"):
                raise Failed("its first line does not say that it is ready")
        except Failed:
            self.stop(patience=2)
            raise

    def send(self, request):
        """Sends it and returns its id."""
        self.asked += 1
        line = json.dumps({"id": self.asked, **request}).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self.process.stdin.fileno(), line) :]
        except OSError as error:
            raise Failed(self.last_words() or error) from error
        return self.asked

    def answers(self, timeout):
        """Waits for at least one answer: pairs of the answer and when it was read."""
        deadline = time.perf_counter() + timeout
        output = self.process.stdout.fileno()
        while True:
            ready = select.select([output], [], [], max(0.0, deadline - time.perf_counter()))[0]
            if not ready:
                raise Failed(f"no answer within {timeout:.0f} s")
            piece = os.read(output, 1 << 20)
            now = time.perf_counter()
            if not piece:
                self.process.wait()
                raise Failed(self.last_words() or "it ended")
            *lines, self.unread = (self.unread + piece).split(b"\n")
            if lines:
                return [(json.loads(line), now) for line in lines]

    def ask(self, request, timeout=60):
        """One request, its answer and the milliseconds between the two. For a time without other requests under way."""
        start = time.perf_counter()
        number = self.send(request)
        while True:
            for answer, now in self.answers(start + timeout - time.perf_counter()):
                if answer.get("id") == number:
                    if not answer.get("ok"):
                        raise Failed(answer.get("error", "refused"))
                    return answer, (now - start) * 1000


def process_table():
    """Process id → (parent's id, state letter)."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    state, parent = stat.read().rpartition(b") ")[2].split()[:2]
                table[int(name)] = (int(parent), state.decode())
            except OSError:
                pass  # it ended meanwhile
    return table


def descendants(root):
    """Everything below a process, itself left out; without what has ended and only waits to be reaped."""
    children = {}
    for pid, (parent, state) in process_table().items():
        if state != "Z":
            children.setdefault(parent, []).append(pid)
    found, unseen = [], [root]
    while unseen:
        new = children.get(unseen.pop(), [])
        found += new
        unseen += new
    return found


def reap_orphans():
    ours = {server.pid for server in Server.running}
    for pid, (parent, state) in process_table().items():
        if parent == os.getpid() and state == "Z" and pid not in ours:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def end_all():
    """Ends every process that this run started, by process id."""
    for server in reversed(list(Server.running)):
        server.stop()
    for _ in range(100):
        left = descendants(os.getpid())
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap_orphans()
        if not left:
            return
        time.sleep(0.05)

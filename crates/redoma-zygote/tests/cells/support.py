"""What tests of cells share. Python's cells run in an interpreter of their own, as in a sandbox, and what comes of them
is read from its output, in order. What cells of other languages print is caught here."""

import fcntl
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest

MARK = "\x1e"
# With all that a session's kernel is made of.
FOLDER = os.path.dirname(os.path.abspath(importlib.util.find_spec("redoma_kernel").origin))

# As the zygote does: afterwards nobody can import any of it.
LOAD = r"""
import os, sys
def load():
    sys.path.insert(0, FOLDER)
    import redoma_kernel
    for name, module in list(sys.modules.items()):
        if name.startswith("redoma_") and os.path.dirname(getattr(module, "__file__", None) or "") == FOLDER:
            del sys.modules[name]
    sys.path[:] = [path for path in sys.path if os.path.realpath(path) != os.path.realpath(FOLDER)]
    return redoma_kernel
"""

DRIVER = r"""
import builtins, json, os, sys
for module in BEFORE:
    __import__(module)
def serve():
    kernel = load()
    cells = json.load(open(CELLS))
    main = type(sys)("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    output, write, dumps, leave = os.dup(1), os.write, kernel.encode, os._exit
    def send(kind, value):
        rest = memoryview(("\x1e" + dumps({kind: value}) + "\n").encode())
        while rest:
            rest = rest[write(output, rest):]
    live = kernel.Kernel(lambda value: send("output", value), main.__dict__, os.getcwd())
    for number, cell in enumerate(cells, 1):
        answer = live.run(cell, number)
        if "repeatable" not in answer:
            # A checkpoint would be made.
            live.repeats.note_checkpoint()
        send("answer", answer)
    live.tidy()
    send("end", True)
    leave(0)
serve()
"""


def has(module):
    return importlib.util.find_spec(module) is not None


def run_program(program):
    """Runs Python that has `load()`, which gives the kernel's module."""
    program = f"FOLDER = {FOLDER!r}\n{LOAD}{textwrap.dedent(program)}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


class Cell:
    """What came of one cell: its text, what it showed, and how it ended."""

    def __init__(self):
        self.text, self.outputs, self.answer, self.order = "", [], None, []

    def kinds(self):
        return [next(iter(output)) for output in self.outputs]

    def of(self, kind):
        return [output[kind] for output in self.outputs if kind in output]

    @property
    def result(self):
        return self.of("result")[-1]["data"]["text/plain"] if self.of("result") else None

    @property
    def data(self):
        return self.of("result")[-1]["data"]

    @property
    def shown(self):
        return [output["data"] for output in self.of("display")]

    @property
    def error(self):
        return self.of("error")[-1] if self.of("error") else None

    @property
    def trace(self):
        return "\n".join(self.error["traceback"])

    @property
    def status(self):
        return self.answer["status"]

    @property
    def notes(self):
        return self.answer.get("notes", [])


class Case(unittest.TestCase):
    """Cells of Python."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def cells(self, *cells, before=(), seconds=60, environment=None):
        """Runs the cells in one session."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump([textwrap.dedent(cell) if "\n    " in cell[:9] else cell for cell in cells], file)
            file.flush()
            start = f"FOLDER, CELLS, BEFORE = {FOLDER!r}, {file.name!r}, {list(before)!r}\n"
            ended = subprocess.run(
                [sys.executable, "-c", start + LOAD + DRIVER],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                timeout=seconds,
                env={**os.environ, "MPLBACKEND": "module://redoma_plots" if has("redoma_plots") else "agg",
                     **(environment or {})},  # fmt: skip
            )
        output = ended.stdout.decode("utf-8", "backslashreplace")
        result, current, whole = [], Cell(), False
        for line in re.findall(r"[^\n]*\n|[^\n]+", output):
            text, mark, frame = line.partition(MARK)
            if text:
                current.text += text
                current.order.append(text)
            if mark:
                frame = json.loads(frame)
                if "output" in frame:
                    current.outputs.append(frame["output"])
                    current.order.append(next(iter(frame["output"])))
                elif "answer" in frame:
                    current.answer = frame["answer"]
                    result.append(current)
                    current = Cell()
                else:
                    whole = True
        self.assertTrue(whole and len(result) == len(cells), f"{ended.returncode}: {output[-3000:]}")
        return result

    def last(self, *cells, **options):
        return self.cells(*cells, **options)[-1]


class Captured:
    """What is printed by whomever, while it is open."""

    def __init__(self):
        self.file = tempfile.TemporaryFile()
        self.saved = os.dup(1), os.dup(2)
        os.dup2(self.file.fileno(), 1)
        os.dup2(self.file.fileno(), 2)
        # Each writes at the end, not where it last was.
        fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_APPEND)
        self.seen = 0

    def new(self):
        text = os.pread(self.file.fileno(), 1 << 24, self.seen)
        self.seen += len(text)
        return text.decode("utf-8", "replace")

    def close(self):
        os.dup2(self.saved[0], 1)
        os.dup2(self.saved[1], 2)
        for descriptor in self.saved:
            os.close(descriptor)
        self.file.close()


def interrupt_after(seconds):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


class Workspace(unittest.TestCase):
    """Cells of other languages."""

    def setUp(self):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.workspace = os.path.realpath(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.workspace, ignore_errors=True)
        self.output = Captured()
        self.addCleanup(self.output.close)

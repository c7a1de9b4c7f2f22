"""A zygote: an interpreter that has its libraries loaded and waits to be copied.

Started by the nursery's keeper as `python3 zygote.py MODULE…`, with its channel as standard input. It imports the modules,
says how that went, and then serves requests inside of redoma's library, which clones this process. What comes back from
there is always a copy: either a sandbox's program, behind all of the jail's walls, or another zygote.
"""

import atexit
import builtins
import ctypes
import gc
import importlib
import importlib.machinery
import io
import itertools
import json
import os
import select
import signal
import sys
import threading
import types
from io import IOBase

# What nearly every program needs of the standard library. Little: each page of it is copied and dropped again with every
# sandbox. Sets with more of it are in the profile.
COMMON = """
base64 bisect collections contextlib copy csv datetime enum functools heapq itertools json math operator os random re string
struct sys textwrap time traceback types warnings
""".split()

CLOSED, PROGRAM, ZYGOTE, HURRIED_PROGRAM = 0, 1, 2, 3
INTERRUPTED = -2
MOST_BYTES = 160 << 10
WORKSPACE = "/mnt/data"


def warm_matplotlib():
    """Draws once: fonts are found, and the modules that drawing loads late are loaded."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot([1, 2], [3, 4], label="a")
    axes.bar(["a", "b"], [1, 2])
    axes.set_title("title")
    axes.legend()
    figure.savefig(io.BytesIO(), format="png")
    pyplot.close("all")
    # Each font in the cache is an open file.
    from matplotlib import font_manager

    font_manager._get_font.cache_clear()
    gc.collect()


def warm_pandas():
    import pandas

    frame = pandas.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "x"], "c": [0.5, 1.5, 2.5]})
    frame.groupby("b").agg({"a": "sum", "c": "mean"}).sort_values("a")
    frame.describe().to_string()
    pandas.read_csv(io.StringIO(frame.to_csv()))


# What a library does late, on its first real use.
EXERCISES = {"matplotlib.pyplot": warm_matplotlib, "pandas": warm_pandas}


def threads():
    return len(os.listdir("/proc/self/task"))


def open_files():
    """What this process has open, by number. Copies have nothing of it: whoever relies on it must not be copied."""
    return {number for number in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{number}")}


def shared_memory():
    """Whether anything is mapped that copies would write to together."""
    with open("/proc/self/smaps") as file:
        flags = [line.split()[1:] for line in file if line.startswith("VmFlags:")]
    return any("sh" in flag and "mw" in flag for flag in flags)


def survives_fork():
    """Whether a copy of this process can do something and say so. (Not by its exit code: a zygote's children leave none.)"""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            gc.collect(0)
            os.write(writer, b"alive")
        finally:
            os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], 10)
    said = os.read(reader, 5) if ready else b""
    os.close(reader)
    try:
        if said != b"alive":
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ChildProcessError, ProcessLookupError):
        pass
    return said == b"alive"


def warm_up(modules):
    """Imports what can be; what then is to be told to the supervisor."""
    imported, left_out, spoiled = [], [], False
    for module in modules:
        reason, before = None, open_files()
        try:
            importlib.import_module(module)
            EXERCISES.get(module, bool)()
        except BaseException as error:  # whatever a library does when it is imported
            reason = f"{type(error).__name__}: {error}"[:500]
        if threads() > 1:
            # Threads are not copied by a fork, and whoever waits for them waits for ever.
            reason, spoiled = "it starts threads when it is imported", True
        elif open_files() - before:
            reason, spoiled = "it keeps files open that it opens when it is imported", True
        elif shared_memory():
            reason, spoiled = "it maps memory that all copies would share", True
        elif reason is None and not survives_fork():
            reason, spoiled = "a copy of the process does not work any more", True
        if reason is None:
            imported.append(module)
        else:
            left_out.append({"module": module, "reason": reason})
        if spoiled:
            break
    return {"imported": imported, "left_out": left_out, "spoiled": spoiled}


class Line:
    """The way to the supervisor, through redoma's library."""

    def __init__(self):
        self.library = ctypes.PyDLL("/.redoma/zygote.so")
        self.buffer = ctypes.create_string_buffer(MOST_BYTES)
        self.length = ctypes.c_size_t()
        # Looked up while nobody has changed anything that looking up needs.
        self.leave = self.library.redoma_leave
        if self.library.redoma_begin() != 0:
            sys.exit("the nursery's blueprint can't be read")

    def say(self, report):
        text = json.dumps(report).encode()
        if self.library.redoma_warm_up(text, len(text)) != 0:
            os._exit(1)

    def serve(self):
        """Comes back in a copy of this process: what it is, and what came with that."""
        ctypes.pythonapi.PyOS_BeforeFork()
        became = self.library.redoma_serve(self.buffer, len(self.buffer), ctypes.byref(self.length))
        if became == CLOSED:
            os._exit(0)
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return became, self.message()

    def message(self):
        return ctypes.string_at(self.buffer, self.length.value).decode()

    def wait(self):
        """In a sandbox's program: the script's name, and its arguments."""
        if self.library.redoma_wait(self.buffer, len(self.buffer), ctypes.byref(self.length)) != 0:
            os._exit(125)
        return self.message().split("\0")


def tidy_heap():
    """Joins free pieces of memory now. The C library does it on the next large `free`, all over the heap: in each copy, with
    a page of its own for each piece."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def stir_openssl():
    """Adds to what OpenSSL's random numbers come from: in a zygote so that all that this loads is loaded, and in each copy so
    that no two have the same."""
    ssl = sys.modules.get("_ssl")
    if ssl is not None:
        ssl.RAND_add(os.urandom(32), 32.0)
        ssl.RAND_bytes(16)


def be_zygote(line, modules):
    """A zygote's life. Comes back in a sandbox's program: whether there is time."""
    while True:
        report = warm_up(modules)
        line.say(report)
        if report["spoiled"]:
            os._exit(1)
        # What is here now stays: the collector need not look at it again, nor copies have pages of their own for it.
        gc.collect()
        gc.freeze()
        stir_openssl()
        tidy_heap()
        became, message = line.serve()
        if became != ZYGOTE:
            return became == PROGRAM
        modules = message.splitlines()


def reseed():
    """Nothing random is the same in two copies. `random` sees to itself after a fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    stir_openssl()
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile._name_sequence = None


def become(script, *arguments):
    """Makes this process look as if it had been started for the script. Gives the script's module and path."""
    path = os.path.join(WORKSPACE, script)
    sys.argv = [script, *arguments]
    sys.orig_argv = [sys.executable, script, *arguments]
    sys.path[0] = WORKSPACE
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __annotations__={},
        __file__=path,
        __builtins__=builtins,
        __cached__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = main
    return main, path


def run(main, path):
    """Runs the script as the interpreter itself would; its exit code."""
    try:
        exec(compile(read(path), path, "exec", dont_inherit=True), main.__dict__)
    except SystemExit as error:
        return exit_code(error)
    except BaseException as error:
        # Without the frame of this function, which is none of the script's.
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        try:
            sys.excepthook(type(error), error.with_traceback(trace), trace)
        except SystemExit as error:
            return exit_code(error)
        except BaseException:
            sys.__excepthook__(*sys.exc_info())
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def read(path):
    with open(path, "rb") as file:
        return file.read()


def exit_code(error):
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(1 << 63) <= code < 1 << 63 else 255
    flush(sys.stdout)
    if sys.stderr is not None:
        print(code, file=sys.stderr)
    return 1


def finish(main, count):
    """What an interpreter does at its end for what the script made; what the zygote made is not worth taking apart. Nothing
    that the script did to itself may show here."""
    for step in (threading._shutdown, atexit._run_exitfuncs):
        try:
            step()
        except BaseException:
            sys.__excepthook__(*sys.exc_info())
    clean(main.__dict__, count)
    for stream in (sys.stdout, sys.stderr):
        flush(stream)


def clean(names, count):
    """Objects go as the last name for them goes: files are written out, and `__del__` is called. First those of the script,
    while everything that they may need is still there, then those of its own modules. `count` modules were there before
    the script."""
    try:
        for name in list(names):
            if not (type(name) is str and name.startswith("__")):
                names[name] = None
        names.clear()
        # The newest are last. Each name that is looked at is a page that has to be copied, so the others are not.
        for name in list(itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - count))):
            forget_own_module(name)
        gc.collect()
        for thing in gc.get_objects():
            # By its real type: asking the object itself could run anything.
            if issubclass(type(thing), IOBase):
                flush(thing)
    except BaseException:
        pass


def forget_own_module(name):
    try:
        path = getattr(sys.modules[name], "__file__", None)
        if type(path) is str and path.startswith(WORKSPACE):
            del sys.modules[name]
    except BaseException:
        pass


def flush(stream):
    try:
        if stream is not None and not stream.closed:
            stream.flush()
    except BaseException:
        pass


REHEARSAL = """
import math, os, sys
def square(number):
    return {"number": number, "square": number ** 2}
class Thing:
    def __init__(self, name): self.name = name
    def __repr__(self): return f"<{self.name!r}>"
squares = [square(number) for number in range(8)]
try: raise ValueError("rehearsal")
except ValueError as error: text = str(error)
print(sorted(squares, key=lambda item: -item["square"])[0], Thing("a"), text, file=OUT)
"""


def rehearse():
    """Does what is to be done soon, for nothing: each page that is written to for the first time since the fork has to be
    copied by the kernel, and those copies are made now, while nobody waits."""
    main, path = become("main.py")
    main.OUT = io.StringIO()
    read("/etc/passwd")
    exec(compile(REHEARSAL, path, "exec", dont_inherit=True), main.__dict__)
    clean(main.__dict__, len(sys.modules))
    flush(sys.stdout)


def main():
    line = Line()
    for module in COMMON:
        try:
            importlib.import_module(module)
        except ImportError:
            pass
    has_time = be_zygote(line, sys.argv[1:])
    reseed()
    if has_time:
        rehearse()
    script, path = become(*line.wait())
    count = len(sys.modules)
    code = run(script, path)
    finish(script, count)
    if code == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    line.leave(code)


main()

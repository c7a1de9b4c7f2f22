"""A zygote: an interpreter that has its libraries loaded and waits to be copied.

Started by the nursery's keeper as `python3 zygote.py MODULE…`, with its channel as standard input. It imports the modules,
says how that went, and then serves requests inside of redoma's library, which clones this process. What comes back from
there is always a copy: either a sandbox's program, behind all of the jail's walls, or another zygote.
"""

import sys

# What any interpreter has loaded before it sees a script.
FROM_THE_START = frozenset(sys.modules)

import _ast
import _imp
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
import threading
import types
from _io import _IOBase

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
OWN_FOLDER = "/.redoma/"
# Flags of `compile`, which `ast` has names for.
ONLY_AST, TOP_LEVEL_AWAIT = 0x400, 0x2000
COROUTINE = 0x80
# Of a script that is longer than this the tree takes too much memory for the value of its last line.
LONGEST_FOR_VALUE = 256 << 10
LONGEST_VALUE = 64 << 10
LONGEST_FRAME = (1 << 20) - 64


def warm_matplotlib():
    """Draws once: fonts are found, and the modules that drawing loads late are loaded."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot([1, 2], [3, 4], label="a")
    axes.bar(["a", "b"], [1, 2])
    axes.set_title("title")
    axes.legend()
    # What `show` does, without leaving a file.
    plots = sys.modules.get("redoma_plots")
    if plots is not None:
        plots.draw(figure)
    else:
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
        # The same, for what waits: called without the interpreter's lock.
        self.waiting = ctypes.CDLL("/.redoma/zygote.so")
        # Looked up while nobody has changed anything that looking up needs.
        self.leave = self.library.redoma_leave
        self.hang_up = self.library.redoma_hang_up
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
        """In a sandbox's program: options (nothing, or JSON), the script's name, and its arguments."""
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


def make_way_for_own_modules():
    """Forgets what was loaded ahead and has the name of a module beside the script, which goes before it. Not what any
    interpreter has loaded before it looks there, nor what is built into it."""
    sys.path_importer_cache.pop(WORKSPACE, None)
    finder = importlib.machinery.PathFinder
    for name in {entry.partition(".")[0] for entry in os.listdir(WORKSPACE)} & sys.modules.keys():
        if name in FROM_THE_START or name in sys.builtin_module_names or _imp.is_frozen(name):
            continue
        spec = finder.find_spec(name, [WORKSPACE])
        # A folder that is no package gives way itself.
        if spec is not None and spec.loader is not None and spec.origin is not None:
            for module in [module for module in sys.modules if module.partition(".")[0] == name]:
                del sys.modules[module]


class Frames:
    """What goes to the supervisor beside the output, within it: lines that begin with a number that it made up. On a
    descriptor of its own, so that they get there whatever the script does to its output."""

    def __init__(self, nonce, output):
        self.start = b"\x1e" + nonce.encode()
        self.output = output
        # As they are now, before the script can change them.
        self.write, self.dumps, self.repr = os.write, json.dumps, repr

    def encode(self, **frame):
        text = self.dumps(frame, ensure_ascii=False, allow_nan=False).encode()
        if len(text) > LONGEST_FRAME:
            raise ValueError("this is more than a tool can be called with (1 MB)")
        return self.start + text + b"\n"

    def send(self, frame):
        rest = memoryview(frame)
        while rest:
            rest = rest[self.write(self.output, rest) :]

    def send_value(self, value):
        """The value of the script's last line as text. One that has none says nothing."""
        try:
            # Before it becomes far longer than anybody will read.
            if type(value) in (str, bytes, bytearray, list, tuple) and len(value) > LONGEST_VALUE:
                value = value[:LONGEST_VALUE]
            text = self.repr(value).encode("utf-8", "backslashreplace")
            text = text[:LONGEST_VALUE].decode("utf-8", "ignore")
            flush(sys.stdout)
            self.send(self.encode(value=text))
        except BaseException:
            pass


def second_stdout():
    """Another name of standard output, for frames. Far from the numbers that a script's own files get, and the last of those
    that take no further memory; lower if the limit of open files is lower."""
    try:
        return os.dup2(1, 63, inheritable=False)
    except OSError:
        return os.dup(1)


def parts(source, path, wants_value, flags):
    """The script's code, in one part or in two: if its last statement is an expression, that by itself, to be evaluated."""
    if not wants_value or len(source) > LONGEST_FOR_VALUE:
        return compile(source, path, "exec", flags, dont_inherit=True), None
    tree = compile(source, path, "exec", flags | ONLY_AST, dont_inherit=True)
    if not tree.body or type(tree.body[-1]) is not _ast.Expr:
        return compile(tree, path, "exec", flags, dont_inherit=True), None
    last = compile(_ast.Expression(tree.body.pop().value), path, "eval", flags, dont_inherit=True)
    before = compile(tree, path, "exec", flags, dont_inherit=True) if tree.body else None
    return before, last


def execute(main, source, path, options, frames):
    names = main.__dict__
    flags = TOP_LEVEL_AWAIT if options["tools"] else 0
    try:
        before, last = parts(source, path, options["value"], flags)
    except SyntaxError as error:
        if not options["tools"] or error.msg != tools.RETURN:
            raise
        tree = compile(source, path, "exec", flags | ONLY_AST, dont_inherit=True)
        before, last = tools.as_function(tree, path, flags), None
    if any(code is not None and code.co_flags & COROUTINE for code in (before, last)):
        value = tools.run_awaiting(before, last, names)
    else:
        if before is not None:
            exec(before, names)
        value = eval(last, names) if last is not None else None
    if value is not None:
        frames.send_value(value)


def run(main, path, options, frames):
    """Runs the script as the interpreter itself would; its exit code."""
    try:
        if options is None:
            exec(compile(read(path), path, "exec", dont_inherit=True), main.__dict__)
        else:
            execute(main, read(path), path, options, frames)
    except SystemExit as error:
        return exit_code(error)
    except BaseException as error:
        trace = own_trace(error.__traceback__, path)
        try:
            sys.excepthook(type(error), error.with_traceback(trace), trace)
        except SystemExit as error:
            return exit_code(error)
        except BaseException:
            sys.__excepthook__(*sys.exc_info())
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def own_trace(trace, path):
    """Without the frames of those who called the script, which are none of its own."""
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    step = trace
    while step is not None:
        # Nor of what a tool's function does.
        while step.tb_next is not None and step.tb_next.tb_frame.f_code.co_filename.startswith(OWN_FOLDER):
            step.tb_next = step.tb_next.tb_next
        step = step.tb_next
    return trace


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
            if issubclass(type(thing), _IOBase):
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
# What a session's kernel is made of, loaded once for all.
KERNEL = {}
OPTIONS = '{"nonce": "0123456789abcdef0123456789abcdef", "value": true, "tools": [], "shadows": false}'


def rehearse():
    """Does what is to be done soon, for nothing: each page that is written to for the first time since the fork has to be
    copied by the kernel, and those copies are made now, while nobody waits."""
    main, path = become("main.py")
    main.OUT = io.StringIO()
    read("/etc/passwd")
    exec(compile(REHEARSAL, path, "exec", dont_inherit=True), main.__dict__)
    # The same for those who want to know its value.
    options = json.loads(OPTIONS)
    frames = Frames(options["nonce"], os.open("/dev/null", os.O_WRONLY))
    execute(main, REHEARSAL + "squares", path, options, frames)
    os.close(frames.output)
    clean(main.__dict__, len(sys.modules))
    flush(sys.stdout)


def own_module(name):
    """From beside this file, with its parts; nothing that a script could import."""
    module = importlib.import_module(name)
    folder = os.path.dirname(module.__file__)
    for other, loaded in list(sys.modules.items()):
        if other.startswith("redoma_") and os.path.dirname(getattr(loaded, "__file__", None) or "") == folder:
            del sys.modules[other]
    return module


def be_kernel(line, options):
    """A session's life, with a module of its own for all its cells."""
    script, _ = become("")
    names = script.__dict__
    for name in ("__file__", "__cached__"):
        del names[name]
    names["__loader__"] = None
    sys.argv = [""]
    frames = Frames(options["nonce"], second_stdout())
    kernel = KERNEL["kernel"]
    way = session.Line(line.library, line.waiting, kernel.encode)
    session.Session(way, frames, names, KERNEL).serve()


def main():
    global tools, session, imports
    line = Line()
    imports = own_module("redoma_imports")
    tools = own_module("redoma_tools")
    session = own_module("redoma_session")
    for part in ("kernel", "shell", "node"):
        KERNEL[part] = own_module("redoma_" + part)
    with open("/.redoma/node_kernel.js") as file:
        KERNEL["node_script"] = file.read()
    for module in COMMON:
        try:
            importlib.import_module(module)
        except ImportError:
            pass
    has_time = be_zygote(line, sys.argv[1:])
    reseed()
    if has_time:
        rehearse()
    words, *rest = line.wait()
    options = json.loads(words) if words else None
    if options and options.get("libraries") is not None:
        imports.guard(options["libraries"], options["profile"])
    if options and options.get("kernel"):
        be_kernel(line, options)
    line.hang_up()
    script, path = become(*rest)
    frames = Frames(options["nonce"], second_stdout()) if options and options["nonce"] else None
    if options and options["tools"]:
        tools.give(script.__dict__, options["tools"], frames)
    if options and options["shadows"]:
        make_way_for_own_modules()
    count = len(sys.modules)
    code = run(script, path, options, frames)
    finish(script, count)
    if code == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    line.leave(code)


main()

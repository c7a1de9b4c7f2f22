"""A session's live kernel: runs cells one after the other in one namespace, and shows what comes of them.

Loaded by the zygote before any user's code, with all its parts. What cells do to the interpreter must not harm the
kernel: it has builtins of its own, keeps what it needs of other modules, and after each cell puts right what it can't
do without.

| file | subject |
|---|---|
| `redoma_kernel.py` | running cells |
| `redoma_transform.py` | code that is no Python |
| `redoma_outputs.py` | what goes to whoever looks |
| `redoma_forms.py` | values and their forms |
| `redoma_texts.py` | texts and JSON as they can be sent |
| `redoma_figures.py` | figures of matplotlib |
| `redoma_tracebacks.py` | tracebacks |
| `redoma_display.py` | `display` |
| `redoma_objects.py` | what `IPython.display` has to be shown |
| `redoma_ipython.py` | `get_ipython()`, and modules that are not installed |
| `redoma_magics.py` | magics |
| `redoma_commands.py` | programs, and what answers for `pip` |
| `redoma_given.py` | what is among the builtins |
| `redoma_libraries.py` | libraries that show something themselves |
| `redoma_upkeep.py` | what is put right between cells |
| `redoma_repeats.py` | which cells can be run again instead of being kept in a checkpoint |
| `redoma_guarded.py` | what all of them share |
"""

from redoma_guarded import BUILTINS as __builtins__

import __future__
import _ast
import builtins
import linecache
import os
import sys

from redoma_forms import is_kind_of, is_large
from redoma_given import give_builtins
from redoma_guarded import live, nothing, type_name
from redoma_ipython import Shell, StandIns
from redoma_libraries import watch_imports
from redoma_outputs import Outputs, write
from redoma_repeats import Repeats
# Not used here: `encode`, with which the session speaks.
from redoma_texts import cut, encode, exact, short  # noqa: F401
from redoma_tracebacks import bare_lines, own_trace, traceback_lines
from redoma_transform import CELL_MAGIC, transform
from redoma_upkeep import Upkeep

# Flags of `compile`, which `ast` has names for.
ONLY_AST, TOP_LEVEL_AWAIT = 0x400, 0x2000
COROUTINE = 0x80
FUTURES = 0
for feature in __future__.all_feature_names:
    FUTURES |= getattr(__future__, feature).compiler_flag
# Of 'nested_scopes', an old one, the flag means something else today.
FUTURES &= ~0xFF
# Of code that is longer than this the tree takes too much memory for the value of its last line.
LONGEST_FOR_VALUE = 256 << 10
# Of how many cells the source is kept.
KEPT_SOURCES = 1000
EXIT_NOTE = "exit() ends the cell, not the session"

linecache_cache = linecache.cache


class Kernel(Outputs):
    """Outputs go to `show`, as they come; `names` are those of all cells."""

    # How many values `Out` keeps.
    MOST_VALUES = 50

    def __init__(self, show, names, workspace="/mnt/data"):
        live.kernel = self
        super().__init__(show)
        self.names, self.workspace = names, workspace
        # As it is now, before a cell can change it.
        self.leave = os._exit
        self.flags = TOP_LEVEL_AWAIT
        self.number, self.silent = 0, False
        self.body_place = "<magic>", 0
        self.loop = None
        self.sources, self.changed = {}, {}
        self.shell = Shell(self)
        self.sent, self.values = [""], {}
        self.upkeep = Upkeep(self)
        # How much was executed of a cell and by it, and whether it would do the same again.
        self.repeats, self.executed, self.repeatable = Repeats(self), 0, False
        give_builtins()
        self.set_up_names()
        watch_imports(StandIns())
        self.upkeep.listen()

    def set_up_names(self):
        self.names.pop("__file__", None)
        self.names.setdefault("__name__", "__main__")
        self.names.setdefault("__builtins__", builtins)
        self.names.update(In=self.sent, Out=self.values)
        self.given = frozenset((*self.names, "In", "Out"))

    # Values.

    def give_result(self, value):
        found = self.forms(value)
        if is_kind_of(value, "matplotlib.figure", "Figure"):
            self.figures.close(value)
        if found is not None:
            data, metadata = found
            self.send({"result": {"data": data, "metadata": metadata}})
        self.remember(value)

    def remember(self, value):
        names, values = self.names, self.values
        if value is values or value is self.sent:
            return
        # A function of this name is somebody's own, which translates texts.
        if not callable(names.get("_")):
            for older, newer in (("___", "__"), ("__", "_")):
                if newer in names:
                    names[older] = None if is_large(names[newer]) else names[newer]
            names["_"] = value
        if is_large(value):
            return
        values[self.number] = names[f"_{self.number}"] = value
        while len(values) > self.MOST_VALUES:
            oldest = next(iter(values))
            del values[oldest]
            names.pop(f"_{oldest}", None)

    def reset(self):
        for name in list(self.names):
            if name not in self.given:
                del self.names[name]
        self.values.clear()
        self.names.update(In=self.sent, Out=self.values)

    # Running.

    def compile(self, source, path):
        """The code in one part or in two: if its last statement is an expression, that by itself, to be evaluated."""
        flags = self.flags
        self.silent = False
        if len(source) > LONGEST_FOR_VALUE:
            before, last = compile(source, path, "exec", flags, True), None
        else:
            try:
                tree = compile(source, path, "exec", flags | ONLY_AST, True)
            except RecursionError:
                # As code it may still be possible.
                tree = None
            self.repeatable = self.executed == 1 and tree is not None and self.repeats.is_sure(tree, len(source))
            if tree is None:
                before, last = compile(source, path, "exec", flags, True), None
            elif not tree.body or type(tree.body[-1]) is not _ast.Expr:
                before, last = compile(tree, path, "exec", flags, True), None
            else:
                value = tree.body.pop().value
                before = compile(tree, path, "exec", flags, True) if tree.body else None
                if before is not None:
                    flags |= before.co_flags & FUTURES
                last = compile(_ast.Expression(value), path, "eval", flags, True)
                if ";" in source:
                    lines = source.split("\n")[value.end_lineno - 1 :]
                    rest = "\n".join([lines[0].encode()[value.end_col_offset :].decode(), *lines[1:]])
                    self.silent = rest.lstrip(") \t\n\\").startswith(";")
        if before is not None:
            self.flags |= before.co_flags & FUTURES
        return before, last

    def execute(self, source, path):
        """Runs code; the value of its last line."""
        self.executed += 1
        magic = CELL_MAGIC.match(source) if "%%" in source else None
        if magic is not None:
            self.repeats.resume()
            self.silent = False
            outer, self.body_place = self.body_place, (path, source.count("\n", 0, magic.end()))
            try:
                return self.shell.magics.cell(magic[1], magic[2].strip(), source[magic.end() :])
            finally:
                self.body_place = outer
        try:
            before, last = self.compile(source, path)
            problem = None
        except SyntaxError as error:
            problem = error
        if problem is not None:
            python, changed = transform(source)
            if python == source:
                raise problem
            problem = None
            self.changed[path] = changed
            before, last = self.compile(python, path)
        if not self.repeatable:
            self.repeats.resume()
        if (before is not None and before.co_flags & COROUTINE) or (last is not None and last.co_flags & COROUTINE):
            return self.wait(self.awaiting(before, last))
        if before is not None:
            eval(before, self.names)
        return eval(last, self.names) if last is not None else None

    async def awaiting(self, *parts):
        value = None
        for part in parts:
            value = eval(part, self.names) if part is not None else None
            if part is not None and part.co_flags & COROUTINE:
                value = await value
        return value

    def execute_body(self, body):
        """Runs what is below a cell's magic, with the numbers that its lines have in the cell."""
        path, lines = self.body_place
        return self.execute("\n" * lines + body, path)

    def wait(self, coroutine):
        """Runs what awaits something, in a loop that other cells go on with."""
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except BaseException as error:
            if task.done():
                # It has been told.
                if not task.cancelled():
                    task.exception()
                raise
            problem = error
        # Something else in the loop, or the waiting itself, was interrupted.
        task.cancel()
        try:
            self.loop.run_until_complete(task)
        except asyncio.CancelledError as cancelled:
            problem = problem.with_traceback(cancelled.__traceback__)
        problem.__context__ = None
        raise problem

    def run(self, code, number):
        """Runs one cell. Never raises."""
        self.running = self.missed = self.repeatable = False
        self.executed = 0
        self.process = self.getpid()
        fine = False
        try:
            fine = self.run_cell(code, number)
        except BaseException as error:
            self.running = False
            self.last_resort(error)
        try:
            self.upkeep.finish()
        except BaseException as error:
            self.running = False
            self.note(f"after the cell: {short(error)}")
        answer = {"status": "ok" if fine else "error"}
        if self.notes:
            answer["notes"], self.notes = self.notes, []
        elif fine and self.repeatable:
            answer["repeatable"] = True
        return answer

    def repeat(self, code, number):
        """Runs a cell that was said to be repeatable, in a copy from before it, for what it does to variables: what it printed was
        seen when it ran first. Whether it went as well this time."""
        # It can't be told while nothing is printed.
        self.repeats.is_quiet()
        show, self.show = self.show, nothing
        try:
            return self.upkeep.silently(self.run, code, number)["status"] == "ok"
        finally:
            self.show = show

    def run_cell(self, code, number):
        self.number = number
        path = f"<cell {number}>"
        if "\r" in code:
            code = code.replace("\r\n", "\n").replace("\r", "\n")
        self.keep_source(path, code, number)
        names = self.names
        names.setdefault("__builtins__", builtins)
        # Else a warning from the same line of another cell would not be shown again.
        names.pop("__warningregistry__", None)
        fine = self.attempt(self.run_code, code, path)
        if self.figures.any_open():
            fine = self.attempt(self.figures.show_all) and fine
        self.figures.forget()
        return fine

    def run_code(self, code, path):
        value = self.execute(code, path)
        if value is not None and not self.silent:
            self.give_result(value)

    def attempt(self, function, *arguments):
        """Runs what is the user's. Whether it went well; what went wrong is shown."""
        try:
            self.running = True
            function(*arguments)
            self.running = False
            problem = None
        except BaseException as error:
            self.running = False
            problem = error
        if self.getpid() != self.process:
            self.leave_copy(problem)
        if problem is None:
            return True
        try:
            return self.fail(problem)
        finally:
            # Not to keep the frames alive.
            problem = None

    def keep_source(self, path, code, number):
        lines = [line + "\n" for line in code.split("\n")]
        self.sources[path] = linecache_cache[path] = len(code), None, lines, path
        if len(self.sources) > KEPT_SOURCES:
            oldest = next(iter(self.sources))
            del self.sources[oldest]
            linecache_cache.pop(oldest, None)
            self.changed.pop(oldest, None)
            if len(self.sent) > KEPT_SOURCES:
                self.sent[-KEPT_SOURCES] = ""
        sent = self.sent
        if len(sent) < number <= len(sent) + 1000:
            sent += [""] * (number - len(sent))
        if number == len(sent):
            sent.append(code)
        elif 0 < number < len(sent):
            sent[number] = code

    def forget_source(self, path):
        self.sources.pop(path, None)
        linecache_cache.pop(path, None)

    def fail(self, error):
        """Shows an exception that ended a cell. Whether that is no error after all."""
        kind = type(error)
        if issubclass(kind, SystemExit):
            self.note(EXIT_NOTE)
            try:
                if error.code is None or error.code == 0:
                    return True
            except BaseException:
                pass
        try:
            # Its text is the user's code as well.
            self.running = True
            output = self.describe(error)
            self.running = False
        except BaseException:
            # Without asking it anything.
            self.running = False
            name = exact(type_name(kind))
            output = {"name": name, "value": "", "traceback": bare_lines(error, name)}
        self.set_last(error)
        self.send({"error": output})
        return False

    def describe(self, error):
        for path, source in self.sources.items():
            if path not in linecache_cache:
                linecache_cache[path] = source
        try:
            value = cut(str(error))
        except Exception:
            value = "<exception str() failed>"
        name = exact(type_name(type(error)))
        try:
            lines = traceback_lines(error, self.changed)
        except Exception:
            lines = bare_lines(error, f"{name}: {value}")
        return {"name": name, "value": value, "traceback": lines}

    def set_last(self, error):
        """As an interactive interpreter does, for those who look at it afterwards."""
        try:
            trace = own_trace(error.__traceback__)
            sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
            sys.last_exc = BaseException.with_traceback(error, trace)
        except BaseException:
            pass

    def last_resort(self, error):
        try:
            name = exact(type_name(type(error)))
            self.send({"error": {"name": name, "value": "", "traceback": [name]}})
        except BaseException:
            self.running = False

    def leave_copy(self, problem):
        """In a copy that a cell made with `os.fork`, at the end of the cell: it ends as a program does."""
        code = 0
        try:
            if problem is not None:
                code = 1
                if issubclass(type(problem), SystemExit):
                    code = problem.code
                    code = 0 if code is None else code & 0xFF if isinstance(code, int) else 1
                else:
                    write(sys.stderr, "\n".join(self.describe(problem)["traceback"]) + "\n")
            self.flush()
        finally:
            self.leave(code)

    def tidy(self):
        """For when nobody waits."""
        self.upkeep.tidy()

"""Which cells do the same when they are run again from where they began: those need no checkpoint of their own.

What is sure is very little, on purpose: simple values are computed with, printed, and given names. Whatever may reach an
object of somebody's own making, a file or the clock is not among it, nor is what would let go of such an object.
"""

from redoma_guarded import BUILTINS as __builtins__

import _ast
import _io
import _signal
import builtins
import gc
import os
import sys
import warnings

# Of such a cell there is no more than this, and nothing in it is nested deeper. (An interpreter has its own end to both, but not
# the same the second time.)
LONGEST, DEEPEST = 2000, 30

# What is known of a value: it is simple, it is new and nothing but its name leads to it, it may be anything.
SIMPLE, NEW, ANYTHING = 2, 1, 0
SIMPLE_TYPES = frozenset((int, float, complex, bool, str, bytes, type(None)))
# Names of builtins whose value for simple ones is simple, and with how many of them that is so.
FUNCTIONS = {
    "print": range(100), "len": (1,), "abs": (1,), "round": (1, 2), "int": (1,), "float": (1,), "str": (1,), "repr": (1,),
    "bool": (1,), "min": range(2, 100), "max": range(2, 100), "pow": (2, 3), "ord": (1,), "chr": (1,), "hex": (1,),
    "oct": (1,), "bin": (1,), "format": (1, 2),
}  # fmt: skip
PRINTING = frozenset(("sep", "end", "flush"))
LATEST = "_", "__", "___"
TIMERS = _signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF
SIGNALS = [number for number in range(1, _signal.NSIG) if number != _signal.SIGINT]
# What Python calls by name, by where that is.
ORIGINALS = [
    (vars(where), {name: vars(where)[name] for name in names if name in vars(where)})
    for where, names in (
        (builtins, FUNCTIONS),
        (warnings, ("showwarning", "_showwarnmsg", "_showwarnmsg_impl", "formatwarning", "_formatwarnmsg", "_formatwarnmsg_impl")),
    )
]
# Ways to print what can't be printed that are Python's own.
OWN_ERRORS = frozenset(("strict", "ignore", "replace", "backslashreplace", "surrogateescape", "xmlcharrefreplace", "namereplace"))
timer, handler, frames, caller = _signal.getitimer, _signal.getsignal, sys._current_frames, sys._getframe
modules, own_modules = sys.modules, sys.stdlib_module_names
open_fd, read_fd, close_fd = os.open, os.read, os.close
does_collect, start_collecting, stop_collecting = gc.isenabled, gc.enable, gc.disable


def count_threads():
    """Of all kinds, also those of Python's that have not begun yet and libraries' own."""
    file = open_fd("/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Behind the name, which may be anything.
        return int(read_fd(file, 2000).rpartition(b")")[2].split()[17])
    finally:
        close_fd(file)


class Repeats:
    """`kernel` is whose cells these are."""

    def __init__(self, kernel):
        self.kernel = kernel
        # Whether at the last checkpoint there was nobody beside the cells who could change variables; and whether what Python calls
        # for them is its own, if that was looked at since then. Cells that can be run again change neither.
        self.was_alone, self.was_unchanged = True, None
        # How many threads there were at that checkpoint, and whether code has asked to be called for every copy.
        self.threads, self.has_hooks = 1, False
        # Whether garbage is not looked for until code runs that may do anything: what is found may have a last word.
        self.is_paused = False
        self.watch_hooks()
        self.statements = {
            _ast.Assign: self.assign,
            _ast.AugAssign: self.augment,
            _ast.Expr: self.expression,
            _ast.FunctionDef: self.define,
            _ast.If: self.branch,
            _ast.Pass: self.nothing,
        }
        self.expressions = {
            _ast.Constant: self.constant,
            _ast.Name: self.name,
            _ast.BinOp: lambda node: self.simple(node.left, node.right),
            _ast.UnaryOp: lambda node: self.simple(node.operand),
            _ast.BoolOp: lambda node: self.simple(*node.values),
            _ast.Compare: self.compare,
            _ast.IfExp: lambda node: self.simple(node.test, node.body, node.orelse),
            _ast.JoinedStr: lambda node: self.simple(*node.values),
            _ast.FormattedValue: lambda node: self.simple(*[part for part in (node.value, node.format_spec) if part]),
            _ast.Call: self.call,
            _ast.Tuple: lambda node: self.collect(node.elts),
            _ast.List: lambda node: self.collect(node.elts),
            _ast.Dict: self.collect_pairs,
        }

    def watch_hooks(self):
        register = os.register_at_fork

        def register_at_fork(**hooks):
            name = caller(1).f_globals.get("__name__")
            if type(name) is not str or name.partition(".")[0] not in own_modules:
                self.has_hooks = True
            register(**hooks)

        os.register_at_fork = register_at_fork

    def note_checkpoint(self):
        """A checkpoint is about to be made."""
        self.was_unchanged = None
        try:
            threads, self.threads = self.threads, count_threads()
            self.was_alone = (
                # One more may be somebody who has not begun.
                self.threads <= max(threads, 1)
                and len(frames()) == 1
                and not self.has_hooks
                and not any(timer(which)[0] for which in TIMERS)
                and not any(map(callable, map(handler, SIGNALS)))
            )
        except Exception:
            self.was_alone = False
        if not self.was_alone:
            self.resume()
        elif does_collect():
            stop_collecting()
            self.is_paused = True

    def resume(self):
        """Before code runs that may do anything."""
        if self.is_paused:
            self.is_paused = False
            start_collecting()

    def is_quiet(self):
        if self.was_unchanged is None:
            try:
                self.was_unchanged = self.is_unchanged()
            except Exception:
                self.was_unchanged = False
        return self.was_unchanged

    def is_unchanged(self):
        """Whether what Python calls for these cells is its own."""
        kernel = self.kernel
        return (
            modules.get("warnings") is warnings
            and all(names.get(name) is original for names, originals in ORIGINALS for name, original in originals.items())
            and not any(formatter.type_printers for formatter in kernel.formatters.values())
            and all(self.is_own_stream(name) for name in ("stdout", "stderr"))
            and kernel.upkeep.can_be_silent()
        )

    def is_own_stream(self, name):
        """Whether what is printed there is not looked at by somebody on its way."""
        stream = self.kernel.upkeep.streams[name]
        if getattr(sys, name, None) is not stream or type(stream) is not _io.TextIOWrapper:
            return False
        layers = stream, stream.buffer, getattr(stream.buffer, "raw", stream.buffer)
        is_bare = all(vars(layer).keys() <= {"mode", "name"} for layer in layers)
        return is_bare and stream.encoding.lower() == "utf-8" and stream.errors in OWN_ERRORS

    def is_sure(self, tree, length):
        """Of a cell that is about to be run: whether it would do the same again."""
        if not self.was_alone or length > LONGEST or not tree.body:
            return False
        # Names that it has given by then, and what is known of their values.
        self.known, self.names = {}, self.kernel.names
        self.depth = self.branches = 0
        try:
            last = tree.body[-1]
            return (
                all(self.statement(one) for one in tree.body)
                and (type(last) is not _ast.Expr or self.can_show(last.value))
                and self.names.get("__builtins__") is builtins
                and self.is_quiet()
            )
        except Exception:
            return False

    def can_show(self, last):
        """Whether remembering a simple value lets go of nothing but others of its kind."""
        if type(last) is _ast.Call and last.func.id == "print":
            # There is none to be remembered.
            return True
        kernel, names = self.kernel, self.names
        return (
            all(type(names.get(name)) in SIMPLE_TYPES for name in (*LATEST, f"_{kernel.number}"))
            and type(kernel.values.get(kernel.number)) in SIMPLE_TYPES
            and len(kernel.values) < kernel.MOST_VALUES
        )

    # Statements: whether they are sure.

    def statement(self, node):
        return bool(self.look(self.statements, node))

    def look(self, checks, node):
        check = checks.get(type(node))
        if check is None or self.depth == DEEPEST:
            return ANYTHING
        self.depth += 1
        found = check(node)
        self.depth -= 1
        return found

    def nothing(self, node):
        return True

    def assign(self, node):
        kind = self.value(node.value)
        return kind and all(self.give(target, kind) for target in node.targets)

    def augment(self, node):
        target = node.target
        return type(target) is _ast.Name and self.name(target) is SIMPLE and self.simple(node.value) and self.give(target, SIMPLE)

    def expression(self, node):
        return self.value(node.value) is SIMPLE

    def branch(self, node):
        self.branches += 1
        found = self.simple(node.test) and all(self.statement(inner) for inner in (*node.body, *node.orelse))
        self.branches -= 1
        return found

    def define(self, node):
        """A function that is not called yet."""
        given = node.args
        everything = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
        return (
            not node.decorator_list
            and node.returns is None
            and not getattr(node, "type_params", None)
            and all(one is None or one.annotation is None for one in everything)
            and all(one is None or self.value(one) for one in (*given.defaults, *given.kw_defaults))
            and self.give_name(node.name, NEW)
        )

    def give(self, target, kind):
        return type(target) is _ast.Name and self.give_name(target.id, kind)

    def give_name(self, name, kind):
        # What has the name now is let go.
        if name[:2] == "__" or type(self.names.get(name)) not in SIMPLE_TYPES:
            return False
        if self.branches and name not in self.names and name not in self.known:
            # It may not be given, and be that of a builtin.
            kind = ANYTHING
        self.known[name] = min(kind, self.known.get(name, SIMPLE))
        return True

    # Values: what is known of them.

    def value(self, node):
        return self.look(self.expressions, node)

    def simple(self, *nodes):
        """What is made of these, if all are simple."""
        return SIMPLE if all(self.value(node) is SIMPLE for node in nodes) else ANYTHING

    def constant(self, node):
        return SIMPLE if type(node.value) in SIMPLE_TYPES else ANYTHING

    def name(self, node):
        name = node.id
        if name in self.known:
            return self.known[name]
        return SIMPLE if name in self.names and type(self.names[name]) in SIMPLE_TYPES else ANYTHING

    def compare(self, node):
        # Which of two equal values is one and the same object is nobody's to say.
        if any(type(operator) in (_ast.Is, _ast.IsNot) for operator in node.ops):
            return ANYTHING
        return self.simple(node.left, *node.comparators)

    def call(self, node):
        function = node.func
        if type(function) is not _ast.Name or function.id not in FUNCTIONS:
            return ANYTHING
        name = function.id
        if name in self.known or name in self.names or len(node.args) not in FUNCTIONS[name]:
            return ANYTHING
        if any(name != "print" or one.arg not in PRINTING for one in node.keywords):
            return ANYTHING
        return self.simple(*node.args, *[one.value for one in node.keywords])

    def collect(self, nodes):
        return NEW if all(self.value(node) for node in nodes) else ANYTHING

    def collect_pairs(self, node):
        return self.simple(*node.keys) and self.collect(node.values)

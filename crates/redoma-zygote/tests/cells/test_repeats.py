"""Cells that can be run again instead of being kept: which they are, and that they come to the same."""

import json

from support import Case, run_program

SURE = [
    "x = 1", "x += 1", "x -= 2; y = x * 2.5", "x", "x;", "z = 1, 2", "name = 'a' 'b'", "f'{x} {x!r:>{x}}'",
    "print(x)", "print('a', x, sep='', end='')", "print()", "print(x)\nx + 1", "x = y = None", "pass", "# nothing\nx = 1",
    "row = [x, {'a': (x, b'c')}]", "line = [x]\nlines = [line, line]", "def f(a, b=1, *c, d=2, **e): return a", "if x > 3:\n    y = 1\nelse:\n    y = 2",
    "x = 5 if x else 6", "x = not x", "1 < x <= 3 and x != 2", "'a' in 'abc'", "len('abc') + abs(-1) + round(2.5, 1)", "int('12')",
    "max(x, 2)", "str(x) + repr(x)", "x = -x", "10 ** 40", "x = 1j", "\n\nx = 1\n\n", "x = 1\r\ny = 2", "'%s' % x",
]  # fmt: skip

# After these there is no telling.
BEFORE = """
class Own(int):
    def __add__(self, other): return 1
    def __repr__(self): return 'own'
own, items, pair, file, more = Own(1), [1], {'a': 1}, open('/dev/null', 'w'), {1, 2}
import math, sys, os
def called(): return 1
x, text = 1, 'text'
"""
UNSURE = [
    # What is not there, or is somebody's.
    "nosuch", "own", "own + 1", "x + own", "x += own", "f'{own}'", "print(own)", "len(own)", "-own", "own and 1", "1 if own else 2",
    "items", "items.append(1)", "items += [1]", "items[0]", "items[0] = 1", "x = items", "print(items)", "pair['a']", "len(items)",
    "called()", "called", "math.pi", "x = math", "text.upper()", "text[0]", "sys", "[own]", "y = [own]", "y = {own: 1}", "y = {1: own}",
    # What has the name already would be let go.
    "file = 1", "items = 1", "own = 1", "items = y = 1", "def called(): pass", "def items(): pass", "if x:\n    file = 2",
    # What is made of something new is not simple.
    "y = [1]\ny += 1", "y = [1]\ny", "y = [1]\nprint(y)", "[1, 2]", "(1, 2) + (3,)", "y = [1] * 3", "'%s' % (x,)", "1 in [1]",
    # Another kind of statement.
    "import math", "from math import pi", "del x", "assert x", "raise ValueError", "global x", "for i in 'ab': pass", "while x: break",
    "with file: pass", "try: pass\nfinally: pass", "class A: pass", "async def f(): pass", "x: int = 1", "x, y = 1, 2", "[a, b] = 'ab'",
    "math.pi = 3", "sys.x = 1", "*a, b = 'abc'", "y = (z := 1)", "lambda: 1", "[i for i in 'ab']", "{*'ab'}", "[*'ab']", "{**pair}", "...",
    "await x", "yield_ = (i for i in 'a')", "{1, 2}", "y = {1, 2}", "from __future__ import annotations",
    # Functions of which something is run.
    "@print\ndef f(): pass", "def f(a=called()): pass", "def f(a: called()): pass", "def f() -> called(): pass", "def f(*, a=own.x): pass",
    "def f(*a: x): pass",
    # Other builtins, and more than is known of them.
    "id(x)", "hash(x)", "type(x)", "open('/dev/null')", "input()", "eval('1')", "exec('x = 1')", "globals()", "vars()", "getattr(x, 'real')",
    "print(x, file=file)", "print(*text)", "print(**pair)", "print(x, flush=own)", "str(b'a', 'rot13')", "int('1', 2)", "int(x, base=2)",
    "max(text)", "max(1, 2, key=called)", "min('ab', default=1)", "sum(items)", "round(number=1.5)", "x is None", "x is not 1", "x == own",
    # Names that mean something else.
    "if 0:\n    license = 1\nlen(str(license))", "if 0:\n    input = 1\ninput", "if x:\n    y = 1\ny",
    "__builtins__ = 1", "__name__ = 'x'", "__x = 1", "print = 1\nprint(2)", "len = 2", "len = 2\nlen",
    # No Python, or none that is run by itself.
    "!true", "%time x", "%%time\nx += 1", "%%capture y\nx = 1", "x?", "%pwd", "x = %pwd", "get_ipython().run_cell('x = 1')",
    # Things that fail.
    "1 / 0", "x +", "x = 1\n1 / 0", "int('a')", "", "# only a comment",
    # Too long.
    "x = 1\n" * 500, "x = " + "1 + " * 40 + "1", "x = " + "-" * 40 + "1", "\n".join("    " * n + "if 1:" for n in range(40)) + " pass",
]  # fmt: skip

# What makes even the surest of them unsure, by its cells.
DISTURBED = [
    "import builtins; builtins.print = lambda *a: None",
    "print = lambda *a: None",
    "import sys; sys.stdout.write = lambda text: None",
    "import io, sys; sys.stdout = io.StringIO()",
    "get_ipython().display_formatter.formatters['text/plain'].for_type(int, lambda value, printer, cycle: printer.text('int'))",
    "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "import signal; signal.signal(14, lambda *a: None); signal.setitimer(signal.ITIMER_REAL, 100)",
    "class Own:\n    def __del__(self): pass\nOwn()",
    "import builtins; __builtins__ = dict(vars(builtins))",
    "import sys; sys.stdout.buffer.write = lambda data: len(data)",
    "import codecs, sys; codecs.register_error('own', lambda error: ('?', error.end)); sys.stdout.reconfigure(errors='own')",
    "import sys; sys.stdout.reconfigure(encoding='latin-1')",
    "import io, sys; sys.stderr = io.StringIO()",
    "import logging; logging.captureWarnings(True)",
    "import warnings; warnings.formatwarning = lambda *a: ''",
    "import signal; signal.signal(signal.SIGCHLD, lambda *a: None)",
    "import os; os.register_at_fork(before=print)",
    "import _thread, time; _thread.start_new_thread(time.sleep, (9,))",
    "import os\nfor n in range(3, 30):\n    if os.path.exists(f'/proc/self/fd/{n}') and os.readlink(f'/proc/self/fd/{n}') == '/dev/null': os.close(n)",
    "get_ipython().display_formatter.formatters.update(odd=1)",
]  # fmt: skip

COMPARE = r"""
import json
cells = json.loads(CELLS)
def visible(live):
    names = {name: repr(value) if type(value).__name__ != "function" else value.__code__.co_code.hex() + value.__code__.co_filename
             for name, value in live.names.items() if name != "__builtins__"}
    return json.dumps([names, live.number, live.sent, repr(live.values), live.flags, list(live.sources)])
live = load().Kernel(lambda output: None, {})
live.run("x = 3; y = 0", 1)
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    # Not the other's child: that would be noted.
    if os.fork() != 0:
        os._exit(0)
    # As in a copy that was woken, of which a copy is made first.
    live.repeats.note_checkpoint()
    fine = [live.repeat(cell, number) and live.repeats.is_quiet() for number, cell in enumerate(cells, 2)]
    os.write(writing, json.dumps([fine, visible(live)]).encode())
    os._exit(0)
os.close(writing)
os.waitpid(child, 0)
first = ["repeatable" in live.run(cell, number) for number, cell in enumerate(cells, 2)]
seen = visible(live)
again, other = json.loads(os.fdopen(reading).read())
assert first == again, (first, again)
assert seen == other, (seen, other)
print("same", first.count(True))
"""


def is_sure(cell):
    return cell.answer.get("repeatable", False)


class Repeats(Case):
    def test_simple_cells_can_be_run_again(self):
        cells = self.cells("x, y = 1, 2", *SURE)
        self.assertEqual([code for code, cell in zip(SURE, cells[1:]) if not is_sure(cell)], [])
        self.assertFalse(is_sure(cells[0]))

    def test_no_others_can(self):
        # Each by itself: what one leaves, another would see.
        for start in range(0, len(UNSURE), 40):
            some = UNSURE[start : start + 40]
            reset = "for n in ('y', 'z', 'f', 'print', 'len', '__x', 'a', 'b', 'i'): globals().pop(n, None)\n_ = __ = ___ = None\n" + BEFORE
            cells = self.cells("import builtins", *(part for code in some for part in (reset + "__builtins__ = builtins", code)))
            self.assertEqual([code for code, cell in zip(some, cells[2::2]) if is_sure(cell)], [])

    def test_what_goes_on_beside_them_is_minded(self):
        for code in DISTURBED:
            cells = self.cells("x = 1", "print(x)\nx", code, "print(x)\nx")
            self.assertEqual([is_sure(cell) for cell in cells], [True, True, False, False], code)

    def test_a_value_that_takes_the_place_of_another_is_minded(self):
        cells = self.cells("_3 = object()", "x = 1", "x", "Out[5] = object()", "x", "x")
        self.assertEqual([is_sure(cell) for cell in cells], [False, True, False, False, False, True])

    def test_only_so_many_values_are_remembered(self):
        cells = self.cells(*["1"] * 52)
        self.assertEqual([is_sure(cell) for cell in cells], [True] * 50 + [False] * 2)

    def test_run_again_they_come_to_the_same(self):
        out = run_program(f"CELLS = {json.dumps(json.dumps(SURE))}\n" + COMPARE)
        lines = out.stdout.splitlines()
        self.assertEqual((out.returncode, lines[-1:]), (0, [f"same {len(SURE)}"]), out.stderr)
        self.assertEqual(sum(line.startswith("a0") for line in lines), 1, lines)

    def test_what_fails_the_second_time_says_so(self):
        out = run_program(
            """
            live = load().Kernel(lambda output: None, {})
            live.run("x = 1", 1)
            print(live.repeat("x += 1", 2), live.repeat("nosuch += 1", 3), live.repeat("x.y", 4), live.names["x"])
            live.repeats.note_checkpoint()
            print(live.repeat("x", 5), live.run("x", 6)["repeatable"])
            """
        )
        self.assertEqual((out.returncode, out.stdout.split()), (0, ["True", "False", "False", "2", "True", "True"]), out.stderr)

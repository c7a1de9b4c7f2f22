"""What is shown of exceptions, and what ends a cell."""

import os

from support import Case


class Errors(Case):
    def test_a_traceback_has_the_users_frames(self):
        cells = self.cells("def f(a):\n    b = 1\n    return b / a", "x = 1\nf(0)")
        self.assertEqual(cells[1].status, "error")
        self.assertEqual((cells[1].error["name"], cells[1].error["value"]), ("ZeroDivisionError", "division by zero"))
        lines = [line for line in cells[1].error["traceback"] if set(line) - set(" ^~")]
        self.assertEqual(
            lines,
            [
                "Traceback (most recent call last):",
                '  File "<cell 2>", line 2, in <module>',
                "    f(0)",
                '  File "<cell 1>", line 3, in f',
                "    return b / a",
                "ZeroDivisionError: division by zero",
            ],
        )

    def test_sources_survive_linecache(self):
        cells = self.cells("def f(): 1/0", "import linecache; linecache.checkcache(); linecache.clearcache()", "f()")
        self.assertIn("def f(): 1/0", cells[2].trace)

    def test_syntax_errors(self):
        a, b, c = self.cells("x = 1\ny = = 2", "compile('a b', 'file.py', 'exec')", "def f(:\n  pass")
        self.assertEqual(a.error["traceback"][:3], ['  File "<cell 1>", line 2', "    y = = 2", "        ^"])
        self.assertEqual(a.error["name"], "SyntaxError")
        self.assertIn('File "<cell 2>", line 1, in <module>', b.trace)
        self.assertEqual(c.status, "error")

    def test_chains_groups_and_notes(self):
        a, b, c, d = self.cells(
            "try:\n    1/0\nexcept Exception as e:\n    raise ValueError('x') from e",
            "try:\n    1/0\nexcept Exception:\n    nosuch",
            "raise ExceptionGroup('many', [ValueError('one'), TypeError('two')])",
            "e = KeyError('k')\ne.add_note('look here')\nraise e",
        )
        self.assertIn("direct cause", a.trace)
        self.assertIn("During handling", b.trace)
        self.assertIn("ValueError: one", c.trace)
        self.assertIn("TypeError: two", c.trace)
        self.assertIn("look here", d.trace)
        self.assertEqual(d.error["value"], "'k'")

    def test_imports_do_not_show_the_importer(self):
        with open(os.path.join(self.folder, "broken.py"), "w") as file:
            file.write("import json\n1/0\n")
        cell = self.last("import sys; sys.path.insert(0, '')", "import importlib\nimportlib.import_module('broken')")
        self.assertIn("broken.py", cell.trace)
        self.assertNotIn("importlib._bootstrap", cell.trace)
        self.assertNotIn("redoma_", cell.trace)

    def test_recursion_is_collapsed(self):
        a, b, c = self.cells(
            "def f(n): return f(n + 1)\nf(0)", "def a(): b()\ndef b(): a()\na()",
            "def g(n): return g(n - 1) if n else 1/0\ng(300)"
        )
        self.assertIn("[Previous line repeated", a.trace)
        self.assertLess(len(a.error["traceback"]), 40)
        self.assertEqual(b.error["name"], "RecursionError")
        self.assertLess(len(b.error["traceback"]), 1000)
        self.assertEqual(c.error["name"], "ZeroDivisionError")

    def test_exceptions_that_fight_back(self):
        cells = self.cells(
            "class E(Exception):\n    def __str__(self): raise ValueError('no')\nraise E()",
            "class F(Exception):\n    def __str__(self): return 5\n    __repr__ = __str__\nraise F()",
            "a, b = ValueError('a'), ValueError('b')\na.__cause__ = b\nb.__cause__ = a\nraise a",
            "class M(type):\n    @property\n    def __name__(cls): raise TypeError('x')\n"
            "    __module__ = __name__\nclass G(Exception, metaclass=M): pass",
            "raise G('deep')",
            "class H(Exception):\n    @property\n    def __class__(self): raise RuntimeError('no class')\nraise H('h')",
            "class I(Exception):\n    __notes__ = 7\n"
            "    def __getattribute__(self, name): raise OSError(name)\nraise I('i')",
            "raise KeyboardInterrupt",
            "raise GeneratorExit('g')",
            "raise BaseException('base')",
            "class J(Exception):\n    def __str__(self): raise KeyboardInterrupt\nraise J",
            "class K(SystemExit):\n    @property\n    def code(self): raise SystemExit(3)\nraise K",
            "raise Exception('\\ud800 \\x00 half')",
            "raise Exception('x' * 10**7)",
            "e = Exception()\nfor i in range(5000):\n    n = Exception(i); n.__context__ = e; e = n\nraise e",
            "raise MemoryError",
            "1 + 1",
        )
        for cell in cells[:-1]:
            if cell is not cells[3]:
                self.assertEqual(cell.status, "error")
                self.assertEqual(len(cell.of("error")), 1)
        self.assertEqual(cells[0].error["name"], "E")
        self.assertEqual(cells[4].error["name"], "G")
        self.assertIn("<cell 5>", cells[4].trace)
        self.assertEqual(cells[5].error["name"], "H")
        self.assertLess(len(cells[13].trace), 300_000)
        self.assertEqual(cells[-1].result, "2")

    def test_exit_ends_the_cell(self):
        cells = self.cells("import sys\nexit()\nprint('no')", "quit(0)", "sys.exit(3)", "raise SystemExit('bye')",
            "1", "exit")
        note = "exit() ends the cell, not the session"
        self.assertEqual(cells[0].answer, {"status": "ok", "notes": [note]})
        self.assertEqual((cells[0].text, cells[0].outputs), ("", []))
        self.assertEqual(cells[1].status, "ok")
        self.assertEqual((cells[2].status, cells[2].error["name"], cells[2].error["value"]), ("error", "SystemExit",
            "3"))
        self.assertEqual(cells[3].notes, [note])
        self.assertEqual(cells[4].result, "1")

    def test_last_exception_as_in_a_repl(self):
        cells = self.cells("y = 5\n1/0",
            "import sys, traceback\ntraceback.print_last()\nsys.last_value, sys.last_exc is sys.last_value")
        self.assertIn("ZeroDivisionError('division by zero'), True", cells[1].result)
        self.assertNotIn("redoma_", cells[1].text)

    def test_frames_of_old_errors_go(self):
        cells = self.cells(
            "import weakref\nclass A: pass\ndef f():\n    global w\n    a = A(); w = weakref.ref(a)\n    1/0\nf()",
            "w() is None", "1/0", "w() is None"
        )
        self.assertEqual([cells[1].result, cells[3].result], ["False", "True"])

    def test_input_says_why_not(self):
        a, b, c, d = self.cells(
            "input('name? ')", "import getpass\ngetpass.getpass()", "import sys\nsys.stdin.read()",
            "import io\nsys.stdin = io.StringIO('4\\n5\\n')\nint(input()) + int(input())",
        )  # fmt: skip
        self.assertEqual(a.error["name"], "EOFError")
        self.assertIn("can't ask anybody here", a.error["value"])
        self.assertIn("can't ask anybody here", b.error["value"])
        self.assertEqual(c.result, "''")
        self.assertEqual(d.result, "9")

"""Whatever cells do to the interpreter, the next one runs."""

from support import Case


class Nasty(Case):
    def test_odd_code(self):
        cells = self.cells(
            "x = 1\0", "x = '\ud800'", "1 +" + " 1 +" * 500 + " 1", "x = '" + "a" * 10**6 + "'",
            "a = 1\r\nb = 2\r\na + b",
            "if 1:\r\tx = 5\r\tx", "(" * 10000, "[" * 150 + "]" * 150, "-" * 100000 + "1", "1" + "+1" * 100000, "'''",
            "\\", "x = (",
            "\x0c1", "  5", "    a = 1\n    a + 1", "return 5", "yield 5", "x: int = 5\nx", "print('\\ud800')", "1 + 2",
        )  # fmt: skip
        for number in (0, 1, 6, 10, 11, 12, 16, 17):
            self.assertEqual(cells[number].status, "error", number)
        self.assertEqual(cells[2].result, "502")
        self.assertEqual(cells[4].result, "3")
        self.assertEqual(cells[15].result, "2")
        self.assertEqual(cells[18].result, "5")
        self.assertEqual(cells[-1].result, "3")

    def check(self, *vandalism, after="print('alive')\n40 + 2"):
        *_, last = self.cells(*vandalism, after)
        self.assertEqual((last.status, last.result), ("ok", "42"), vandalism)
        self.assertEqual(last.text, "alive\n", vandalism)
        *_, failed = self.cells(*vandalism, "def f(): return 1/0\nf()")
        self.assertEqual(failed.error["name"], "ZeroDivisionError", vandalism)
        self.assertIn("<cell", failed.trace)

    def test_streams_that_are_gone(self):
        self.check("import sys\nsys.stdout = None")
        self.check("import sys\nsys.stdout.close()")
        self.check("import sys\ndel sys.stdout, sys.stderr")
        self.check("import sys\nsys.stdout.detach()")
        self.check("import os\nos.close(1)")
        self.check("import os, sys\nos.close(1); os.close(2); sys.stdout = sys.stderr = None")
        self.check("import sys, io\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)",
            "import sys\nsys.stdout = sys.__stdout__")
        self.check("class S:\n    closed = False\n    def flush(self): raise SystemExit\nimport sys\nsys.stderr = S()")
        self.check("import sys\nsys.stdin.close()\nsys.stdin = None")

    def test_a_stream_of_ones_own_is_noted_once(self):
        a, b, c = self.cells("import sys, io\nsys.stdout = io.StringIO()", "print('lost')",
            "sys.stdout = sys.__stdout__\nprint('back')")
        self.assertIn("sys.stdout is something else now", a.notes[0])
        self.assertEqual(b.notes, [])
        self.assertEqual((c.text, c.notes), ("back\n", []))

    def test_changed_builtins(self):
        self.check("import builtins\ndef bad(*a, **k): raise SystemError('vandal')",
                   "for name in 'repr len str isinstance issubclass getattr type compile eval exec open any'.split():\n"
                   "    setattr(builtins, name, bad)")  # fmt: skip
        self.check(
            "import builtins\n"
            "for name in 'repr len getattr setattr hasattr compile eval exec BaseException'.split():\n"
            "    delattr(builtins, name)")
        self.check("del __builtins__", "globals().pop('__builtins__', None)")

    def test_changed_modules(self):
        self.check(
            "import json, os, sys, linecache\n"
            "json.dumps = json.loads = os.write = os.getpid = linecache.getline = None")
        self.check("import traceback\ntraceback.TracebackException = traceback.format_exception = None")
        self.check("import traceback\ntraceback.TracebackException.format = None")
        self.check("import sys\nsys.excepthook = sys.displayhook = sys.unraisablehook = None")
        self.check("import sys\nsys.meta_path.clear()\nsys.path.clear()")
        self.check("import sys, os\nfor name in list(sys.modules): sys.modules.pop(name)")
        self.check("import sys\nsys.modules['__main__'] = None")
        self.check("import sys\nsys.setrecursionlimit(60)")
        self.check("import sys\nsys.settrace(lambda *a: 1/0)")
        self.check("import sys\ndef t(*a): return t\nsys.settrace(t); sys.setprofile(lambda *a: None)")
        self.check("import gc\ngc.disable()\ngc.set_threshold(1)")
        self.check("import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)")
        self.check("import os\nos.chdir('/')\nos.environ.clear()")
        self.check("get_ipython()._kernel.figures.show_all = None\nIn = Out = _ = None")

    def test_names_are_cleared(self):
        self.check("globals().clear()")
        self.check("for name in list(globals()): del globals()[name]")

    def test_values_that_fight_back(self):
        cells = self.cells(
            "class A:\n    def __repr__(self): raise ValueError('no repr')\nA()",
            "class B:\n    @property\n    def __class__(self): raise RuntimeError('no class')\nB()",
            "class M(type):\n    def __getattribute__(cls, name): raise RuntimeError(name)\n"
            "class C(metaclass=M): pass\nC()",
            "class D:\n    def __getattr__(self, name): return lambda *a, **k: 1/0\nD()",
            "class E:\n    def __getattribute__(self, name): raise OSError(name)\nE()",
            "class F:\n    def __repr__(self): return '\\ud800'\nF()",
            "class S(str): pass\nclass G:\n    def __repr__(self): return S('sub')\nG()",
            "class H:\n    def __repr__(self): raise KeyboardInterrupt\nH()",
            "class I:\n    def __repr__(self): raise SystemExit\nI()",
            "class J:\n    def __repr__(self): return repr(self)\nJ()",
            "class K:\n    def __bool__(self): raise ValueError\n    def __eq__(self, o): raise ValueError\n"
            "    __len__ = __hash__ = __eq__\nK()",
            "from unittest.mock import MagicMock\nMagicMock()",
            "C", "int", "10**5000", "type('x\\ud800', (), {})()", "object.__new__(type('L', (dict,), {'keys': 5}))",
            "5",
        )  # fmt: skip
        self.assertEqual(cells[0].error["name"], "ValueError")
        self.assertIn("__repr__", cells[0].trace)
        for number in (1, 3, 10, 11):
            self.assertEqual(cells[number].status, "ok", number)
        self.assertEqual(cells[5].result, "\\ud800")
        self.assertEqual(cells[6].result, "sub")
        self.assertEqual(cells[7].error["name"], "KeyboardInterrupt")
        self.assertEqual(cells[9].error["name"], "RecursionError")
        self.assertEqual(cells[-1].result, "5")

    def test_a_copy_of_the_process_ends_with_the_cell(self):
        cells = self.cells(
            "import os\npid = os.fork()\nif pid == 0:\n    print('child')\n    display('from the child')\n"
            "else:\n    print(os.waitpid(pid, 0)[1])",
            "pid = os.fork()\nif pid == 0: 1/0\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
            "pid = os.fork()\nif pid == 0: raise SystemExit(7)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
        )
        self.assertIn("from the child", cells[0].text)
        self.assertTrue(cells[0].text.endswith("0\n"))
        self.assertIn("ZeroDivisionError", cells[1].text)
        self.assertTrue(cells[1].text.endswith("1\n"))
        self.assertEqual(cells[2].text, "7\n")

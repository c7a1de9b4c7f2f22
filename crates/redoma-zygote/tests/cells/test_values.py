"""Cells share their names, and the value of the last line is shown."""

from support import Case


class Values(Case):
    def test_cells_share_names_and_show_the_last_value(self):
        a, b, c, d = self.cells("x = 20", "y = 1\nx * 2 + y + 1", "x;", "None")
        self.assertEqual((a.status, a.outputs), ("ok", []))
        self.assertEqual(b.of("result"), [{"data": {"text/plain": "42"}, "metadata": {}}])
        self.assertEqual(c.outputs + d.outputs, [])

    def test_a_semicolon_at_the_end_hides_the_value(self):
        hidden = ["5;", "5; ", "(5);", "5;  # why", "'a;b';", "x = 1; 5;", "(\n5\n)\n;", "'ä' ;"]
        shown = ["5  # no;", "';'", "x = 1; 5", "5 # ;"]
        cells = self.cells(*hidden, *shown)
        for code, cell in zip(hidden + shown, cells):
            self.assertEqual(bool(cell.of("result")), code in shown, code)

    def test_last_values_are_kept(self):
        cells = self.cells("10", "20", "30", "(_, __, ___)", "Out[1] + _2", "In[1:3]", "sorted(Out)[:3]")
        self.assertEqual(cells[3].result, "(30, 20, 10)")
        self.assertEqual(cells[4].result, "30")
        self.assertEqual(cells[5].result, "['10', '20']")
        self.assertEqual(cells[6].result, "[1, 2, 3]")

    def test_old_and_large_values_are_not_kept(self):
        code = ["'v' + str(i) if (i := %d) else 0" % n for n in range(1, 70)]
        cells = self.cells(*code, "len(Out), min(Out), '_3' in globals()", "b'x' * (2 << 20)", "71 in Out, len(_)")
        self.assertEqual(cells[-3].result, "(50, 20, False)")
        self.assertEqual(cells[-1].result, f"(False, {2 << 20})")

    def test_a_function_named_underscore_stays(self):
        self.assertEqual(self.last("def _(text): return text.upper()", "5", "_('a')").result, "'A'")

    def test_futures_carry_over(self):
        cells = self.cells(
            "from __future__ import annotations\n1", "def f(a: nosuch): pass\nf.__annotations__", "class A:\n  x: zz\nA"
        )
        self.assertEqual(cells[1].result, "{'a': 'nosuch'}")
        self.assertEqual(cells[2].status, "ok")

    def test_output_is_in_order(self):
        cell = self.last(
            "print('a')\ndisplay(1)\nprint('b', end='')\ndisplay(2)\nimport sys\nprint('c', file=sys.stderr)\n3")
        self.assertEqual(cell.order, ["a\n", "display", "b", "display", "c\n", "result"])

    def test_empty_cells(self):
        for cell in self.cells("", "\n\n", "# only a comment", "   ", "\t\n  # x", "pass", '"""text"""\nNone'):
            self.assertEqual((cell.status, cell.outputs, cell.text), ("ok", [], ""))

    def test_huge_values_are_cut(self):
        cells = self.cells("'x' * 10**6", "list(range(10**6))", "{i: i for i in range(10**6)}", "'ä' * 40000",
            "set(range(10**5))")
        for cell in cells:
            self.assertEqual(cell.status, "ok")
            self.assertLess(len(cell.result.encode()), 66 << 10)
            self.assertIn("cut: only the first 64 KiB", cell.result)

    def test_main_is_main(self):
        cells = self.cells(
            "if __name__ == '__main__': print('yes')",
            "__file__",
            "class A:\n    def __init__(self): self.x = 1\n    def __eq__(self, o): return self.x == o.x\n"
            "def f(a): return a * 2",
            "import pickle\npickle.loads(pickle.dumps(A())) == A(), pickle.loads(pickle.dumps(f))(4)",
            "import inspect\nprint(inspect.getsource(f))",
            "import dataclasses, typing\n@dataclasses.dataclass\nclass D:\n    a: int = 1\n    b: 'A' = None\n"
            "(D(2), typing.get_type_hints(D)['b'] is A)",
            "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as pool: print(pool.map(f, [1, 2, 3]))",
        )
        self.assertEqual(cells[0].text, "yes\n")
        self.assertEqual(cells[1].error["name"], "NameError")
        self.assertEqual(cells[3].result, "(True, 8)")
        self.assertEqual(cells[4].text, "def f(a): return a * 2\n\n")
        self.assertEqual(cells[5].result, "(D(a=2, b=None), True)")
        self.assertEqual(cells[6].text, "[2, 4, 6]\n")

    def test_warnings_name_the_cell_each_time(self):
        code = "import warnings\nwarnings.warn('careful')"
        for number, cell in enumerate(self.cells(code, code), 1):
            self.assertIn(f"<cell {number}>:2: UserWarning: careful", cell.text)
            self.assertIn("warnings.warn('careful')", cell.text)

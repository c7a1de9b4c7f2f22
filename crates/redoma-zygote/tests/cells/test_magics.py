"""Magics, and the shell that `get_ipython()` gives."""

import os
import time

from support import Case


class Magics(Case):
    def test_timing(self):
        start = time.monotonic()
        cells = self.cells(
            "%time x = 5", "x", "%time 1 + 1", "%%time\ny = 3\ny", "%timeit x + 1", "%%timeit z = 2\nz + 1\nz + 2",
            "%timeit -n 3 -r 2 x", "import time\n%timeit time.sleep(0.5)",
            "t = %timeit -o -q x", "%timeit nosuch", "%prun sum(range(10))",
        )  # fmt: skip
        self.assertIn("Wall time:", cells[0].text)
        self.assertEqual([cells[1].result, cells[2].result, cells[3].result], ["5", "2", "3"])
        for number in (4, 5, 7):
            self.assertIn("per loop", cells[number].text)
        self.assertIn("2 runs, 3 loops each", cells[6].text)
        self.assertEqual(cells[9].error["name"], "NameError")
        self.assertLess(time.monotonic() - start, 15)

    def test_places_and_names(self):
        cells = self.cells(
            "%pwd", "!mkdir sub\n%cd sub", "!pwd", "%cd -", "%env A=b c", "import os\nos.environ['A']", "%env A",
            "%set_env B 5", "!echo $B", "x = 1\ns = 'a'", "%who", "%whos",
            "p = %pwd\np", "%reset -f", "x", "In[1], display, Out is not None", "%cd nosuch", "%lsmagic",
            "%precision 2", "3.14159", "%history",
        )  # fmt: skip
        self.assertEqual(cells[0].result, repr(os.path.realpath(self.folder)))
        self.assertTrue(cells[2].text.endswith("/sub\n"))
        self.assertEqual(cells[3].text.strip(), os.path.realpath(self.folder))
        self.assertEqual([cells[5].result, cells[6].result, cells[8].text], ["'b c'", "'b c'", "5\n"])
        self.assertEqual(cells[10].text.split(), ["os", "s", "x"])
        self.assertRegex(cells[11].text, r"x +int +1\n")
        self.assertEqual(cells[14].error["name"], "NameError")
        self.assertEqual(cells[15].status, "ok")
        self.assertEqual(cells[16].error["name"], "FileNotFoundError")
        self.assertIn("%%writefile", cells[17].text)
        self.assertEqual(cells[19].result, "3.14")

    def test_files(self):
        cells = self.cells(
            "%%writefile a.py\nimport sys\nx = 41 + 1\nif __name__ == '__main__': print('run', sys.argv[1:])",
            "%run a.py b c", "x", "%%writefile -a a.py\n1/0", "%run a.py",
            "%%writefile a.py\n", "__name__, '__file__' in globals()", "%%writefile\nx", "%run nosuch.py",
        )  # fmt: skip
        self.assertEqual(cells[0].text, "Writing a.py\n")
        self.assertEqual((cells[1].text, cells[2].result), ("run ['b', 'c']\n", "42"))
        self.assertEqual(cells[3].text, "Appending to a.py\n")
        self.assertIn("a.py", cells[4].trace)
        self.assertEqual(cells[6].result, "('__main__', False)")
        self.assertEqual([cells[7].error["name"], cells[8].error["name"]], ["UsageError", "FileNotFoundError"])

    def test_shown_cells_and_accepted_magics(self):
        cells = self.cells("%%html\n<b>", "%%markdown\n# x", "%%svg\n<svg/>", "%%latex\n$x$", "%%javascript\n1",
            "%matplotlib inline", "%matplotlib", "%load_ext autoreload\n%autoreload 2", "%config X.y = 'z'", "%pylab")
        kinds = [list(cell.shown[0])[0] for cell in cells[:5]]
        self.assertEqual(kinds, ["text/html", "text/markdown", "image/svg+xml", "text/latex", "application/javascript"])
        for cell in cells[5:]:
            self.assertEqual((cell.answer, cell.outputs, cell.text), ({"status": "ok"}, [], ""))

    def test_help(self):
        cells = self.cells("def f(a, b=2):\n    'Does things.'\n    return a", "f?", "?f", "f??", "nosuch?",
            "x = [1]\nx?", "%time?", "str.join?")
        for number in (1, 2):
            self.assertIn("Signature: f(a, b=2)\nDocstring: Does things.", cells[number].text)
        self.assertIn("return a", cells[3].text)
        self.assertIn("not found", cells[4].text)
        self.assertTrue(all(cell.status == "ok" for cell in cells))

    def test_unknown_magics(self):
        a, b, c = self.cells("%nosuch x", "%%nosuch\nx", "%writefile x")
        for cell in (a, b, c):
            self.assertEqual((cell.status, cell.error["name"]), ("error", "UsageError"))
        self.assertIn("%timeit", a.error["value"])
        self.assertIn("%%writefile", c.error["value"])

    def test_the_shell(self):
        cells = self.cells(
            "ip = get_ipython()\nip.run_line_magic('pwd', '')", "ip.run_cell_magic('bash', '', 'echo x')",
            "ip.system('echo y')", "ip.kernel.do_shutdown(); ip.config, ip.user_ns is globals()",
            "from IPython.core.magic import register_line_magic, register_cell_magic\n@register_line_magic\n"
            "def twice(line): return line * 2\n@register_cell_magic\n"
            "def up(line, cell): print(line + cell.upper())",
            "%twice ab", "%%up a\nb", "ip.events.register('post_execute', print)", "ip.run_cell('5 + 5').result",
            "'IPKernelApp' in ip.config",
        )  # fmt: skip
        self.assertEqual([cell.status for cell in cells], ["ok"] * len(cells))
        self.assertEqual([cells[1].text, cells[2].text, cells[6].text], ["x\n", "y\n", "aB\n"])
        self.assertEqual([cells[3].result, cells[5].result, cells[9].result], ["({}, True)", "'abab'", "False"])

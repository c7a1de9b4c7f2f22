"""Lines that are no Python: commands and what runs them."""

import os

from support import Case, has


class Commands(Case):
    def test_lines_of_python_stay(self):
        cells = self.cells(
            "b, c = 7, 4\na = b %c\na", 'x = """\n!no\n%no\n?\n"""\nx', "(1\n% 2)", "y = 5 \\\n% 3\ny",
            "s = '%d' % 5 ; s", "z = [\n'!ls',\n1\n]\nz != 1",
            "!echo one\nx = '''\n!echo no\n'''\nq = (\n5\n% 3)\nprint(len(x), q)", "x = 'a' # !ls\n!echo two",
            "x = f'{b!r}'\n!echo {x}",
            "'it\\'s' ; w = \"a'b\"\n!echo three", "d = {\n'a': 1,  # don't\n}\n!echo four",
            "w = 'a\\\n!b'\n!echo five",
            "!true\nprint('x=%d' % 5)\nd = {}\nd['k'] = !echo six\nprint(d['k'].s)",
        )  # fmt: skip
        self.assertEqual([cell.result for cell in cells[:6]], ["3", "'\\n!no\\n%no\\n?\\n'", "1", "2", "'5'", "True"])
        self.assertEqual(cells[6].text, "one\n10 2\n")
        texts = [cell.text for cell in cells[7:]]
        self.assertEqual(texts, ["two\n", "7\n", "three\n", "four\n", "five\n", "x=5\nsix\n"])

    def test_commands(self):
        cells = self.cells(
            "x = 5\n!echo $x {x + 1} ${HOME:+home} $NOSUCH '{print $1}' {x:.2f}",
            "lines = !printf 'a\\nb\\n'\nlines, lines.n, lines.s", "!exit 3\n_exit_code",
            "def f(name):\n    !echo hello {name}\n    r = !echo $name\n    return r\nf('you')", "!!echo direct",
            "for i in range(2):\n    !echo {i}\nelse:\n    !echo end",
            "!echo a \\\n  b", "!echo error >&2", "!cat", "!echo $$x {{y}}", "%ls nosuch 2>/dev/null; echo after",
            "!pwd",
            "import io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()) as out:\n    !echo caught\n"
            "out.getvalue()", "!printf 'no newline'\nprint()\nprint('next')",
            "d = {'k': [1, 2]}\n!echo {d['k'][1]}", "!for k in 1 2; do echo $k; done",
            "x = !false\nlen(x), _exit_code", "!echo \"it's\"", "!sleep 0.01 &\n!echo {\"a\": 1}",
        )  # fmt: skip
        self.assertEqual(cells[0].text, "5 6 home {print $1} 5.00\n")
        self.assertEqual(cells[1].result, r"(['a', 'b'], 'a\nb', 'a b')")
        self.assertEqual(cells[2].result, "3")
        self.assertEqual((cells[3].text, cells[3].result), ("hello you\n", "['you']"))
        self.assertEqual(cells[4].result, "['direct']")
        self.assertEqual(cells[5].text, "0\n1\nend\n")
        self.assertEqual([cells[6].text, cells[7].text, cells[8].text], ["a b\n", "error\n", ""])
        self.assertEqual(cells[9].text, "{y}\n")
        self.assertEqual(cells[11].text.strip(), os.path.realpath(self.folder))
        self.assertEqual(cells[12].result, r"'caught\n'")
        self.assertEqual(cells[13].text, "no newline\nnext\n")
        self.assertEqual([cells[14].text, cells[15].text], ["2\n", "1\n2\n"])
        self.assertEqual(cells[16].result, "(0, 1)")
        self.assertEqual(cells[17].text, "it's\n")

    def test_errors_beside_magics(self):
        cells = self.cells("!true\n\n1/0", "%time 1/0", "!true\nx = = 1", "# c\n\n%%time\nx = 1\n1/0",
            "x = 1\n%%bash\nls")
        self.assertIn('File "<cell 1>", line 3', cells[0].trace)
        self.assertIn("%time 1/0", cells[1].trace)
        self.assertNotIn("get_ipython", cells[1].trace)
        self.assertIn('File "<cell 3>", line 2', cells[2].trace)
        self.assertIn('File "<cell 4>", line 5', cells[3].trace)
        self.assertIn("first line", cells[4].error["value"])

    def test_scripts(self):
        cells = self.cells(
            "%%bash\necho $0; cd /; pwd\nread x; echo \"[$x]\"", "%%sh\necho sh", "%%script bash\necho s",
            "%%bash\nexit 4", "_exit_code", "%%script cat\nsome text",
            "%%python3\nprint(5)", "%%bash --no-raise-error\nexit 1", "%%bash\n" + "echo x\n" * 30000 + "echo end",
        )  # fmt: skip
        self.assertTrue(cells[0].text.endswith("/\n[]\n"))
        self.assertEqual([cells[1].text, cells[2].text, cells[5].text, cells[6].text], ["sh\n", "s\n", "some text",
            "5\n"])
        self.assertEqual((cells[3].error["name"], cells[4].result), ("CalledProcessError", "4"))
        self.assertEqual(cells[7].status, "ok")
        self.assertTrue(cells[8].text.endswith("x\nend\n"))

    def test_capture(self):
        cells = self.cells(
            "%%capture got\nprint('a')\n!echo b\ndisplay(5)\nimport sys; print('e', file=sys.stderr)\n6",
            "got.stdout, got.stderr, len(got.outputs)", "got.show()", "%%capture\n1/0", "print(1)")
        self.assertEqual((cells[0].text, cells[0].outputs), ("", []))
        self.assertEqual(cells[1].result, r"('a\nb\n', 'e\n', 2)")
        self.assertEqual((cells[2].text, cells[2].kinds()), ("a\nb\ne\n",
            ["display", "result"]))
        self.assertEqual((cells[3].error["name"], cells[4].text), ("ZeroDivisionError", "1\n"))

    def test_pip_has_no_network(self):
        cells = self.cells("!pip install -q nosuch-thing 'other>=2' 2>/dev/null | tail -1", "%pip install nosuch",
            "pip install nosuch", "!python -m pip install nosuch && echo no", "%pip list", "%conda install x",
            "!pip3 install nosuch; echo after")
        self.assertIn("nosuch-thing can't be installed", cells[0].text)
        self.assertIn("other can't be installed", cells[0].text)
        for number in (1, 2, 3, 6):
            self.assertTrue(cells[number].text.startswith("nosuch can't be installed: the sandbox has no network"),
                cells[number].text)
        self.assertNotIn("\nno", cells[3].text)
        self.assertTrue(cells[6].text.endswith("after\n"))
        if has("numpy"):
            self.assertIn("numpy is already there (", self.last("!pip install numpy").text)

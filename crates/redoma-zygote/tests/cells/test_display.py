"""Values in all their forms, and what `IPython.display` has."""

import base64
import os

from support import Case


class Display(Case):
    def test_forms(self):
        cell = self.last(
            "class A:\n"
            "    def _repr_html_(self): return '<b>'\n"
            "    def _repr_png_(self): return b'\\x89PNG', {'width': 5}\n"
            "    def _repr_jpeg_(self): return '/9j/\\n'\n"
            "    def _repr_svg_(self): return '<svg/>'\n"
            "    def _repr_json_(self): return {'a': [1]}\n"
            "    def _repr_latex_(self): return None\n"
            "    def _repr_markdown_(self): raise ValueError('bad')\n"
            "    def __repr__(self): return 'A!'\n"
            "A()"
        )
        self.assertEqual(
            cell.of("result")[0],
            {
                "data": {
                    "text/html": "<b>",
                    "image/png": base64.b64encode(b"\x89PNG").decode(),
                    "image/jpeg": "/9j/",
                    "image/svg+xml": "<svg/>",
                    "application/json": {"a": [1]},
                    "text/plain": "A!",
                },
                "metadata": {"image/png": {"width": 5}},
            },
        )
        self.assertIn("ValueError: bad", cell.notes[0])

    def test_bundles_and_own_display(self):
        cells = self.cells(
            "class A:\n"
            "    def _repr_mimebundle_(self, include=None, exclude=None):\n"
            "        return {'text/html': 'x', 'application/x+json': {'a': 1}}, {'text/html': {'m': 1}}\n"
            "A()",
            "class B:\n    def _ipython_display_(self): display(5)\nB()",
            "class C:\n    def _repr_mimebundle_(self, **k): 1/0\n    def _repr_html_(self): return 'y'\nC()",
            "class D:\n    def _repr_json_(self): return {1, 2}\nD()",
            "class E:\n    def _repr_html_(self): return 5\nE()",
        )
        self.assertEqual(cells[0].data["application/x+json"], {"a": 1})
        self.assertEqual(cells[0].of("result")[0]["metadata"], {"text/html": {"m": 1}})
        self.assertEqual(cells[1].kinds(), ["display"])
        self.assertEqual(cells[2].data["text/html"], "y")
        self.assertEqual((list(cells[3].data), len(cells[3].notes)), (["text/plain"], 1))
        self.assertEqual((list(cells[4].data), len(cells[4].notes)), (["text/plain"], 1))

    def test_what_is_too_large_is_left_out(self):
        cells = self.cells(
            "class A:\n    def _repr_html_(self): return 'x' * (2 << 20)\nA()",
            "class B:\n    def _repr_png_(self): return b'x' * (15 << 20)\nB()",
            "class C:\n    def _repr_png_(self): return b'x' * (17 << 20)\nC()",
        )
        self.assertEqual((list(cells[0].data), len(cells[0].notes)), (["text/plain"], 1))
        self.assertIn("image/png", cells[1].data)
        self.assertEqual((list(cells[2].data), len(cells[2].notes)), (["text/plain"], 1))

    def test_display(self):
        cells = self.cells(
            "display(1, 'a')", "h = display('x', display_id=True)\nh.update('y')\nprint(type(h).__name__)",
            "display('z', display_id='my')\nupdate_display = 1",
            "display({'text/html': 'raw', 'text/plain': 'r'}, raw=True, metadata={'text/html': {'a': 1}})",
            "display(5, metadata={'k': 1}, clear=True)",
            "from IPython.display import *\nfrom IPython.display import HTML, Markdown, clear_output\n"
            "clear_output(wait=True)",
            "display(HTML('<i>'), include=['text/html'])", "display(Markdown('# x'), exclude=['text/plain'])",
            "display()", "update_display(3, display_id='my')",
        )  # fmt: skip
        self.assertEqual(cells[0].shown, [{"text/plain": "1"}, {"text/plain": "'a'"}])
        first, second = cells[1].of("display")
        self.assertTrue(first["id"] and first["id"] == second["id"] and not first["update"] and second["update"])
        self.assertEqual(cells[2].of("display")[0]["id"], "my")
        self.assertEqual(cells[3].of("display")[0]["metadata"], {"text/html": {"a": 1}})
        self.assertEqual(cells[4].kinds(), ["clear", "display"])
        self.assertEqual(cells[5].outputs, [{"clear": {"wait": True}}])
        self.assertEqual(cells[6].shown, [{"text/html": "<i>"}])
        self.assertEqual(cells[7].shown, [{"text/markdown": "# x"}])
        self.assertEqual(cells[8].outputs, [])
        self.assertEqual(cells[9].status, "ok")

    def test_objects_of_ipython(self):
        with open(os.path.join(self.folder, "p.png"), "wb") as file:
            file.write(b"\x89PNG....")
        cells = self.cells(
            "from IPython.display import *\n"
            "from IPython.display import display, HTML, Image, Markdown, JSON, SVG, Latex, Javascript\n"
            "from IPython.display import Pretty, Code, clear_output, update_display, IFrame, FileLink, Audio, Video\n"
            "from IPython.core.display import HTML as H",
            "Image('p.png', width=30)", "Image(url='http://x/y.png')", "Image('nosuch.png')", "JSON({'a': 1})",
            "SVG('<svg/>')", "Latex('$x$')",
            "Javascript('1')", "Pretty('p\\nq')", "Code('a<b')", "IFrame('http://x', 100, 50)", "FileLink('p.png')",
            "Audio([0, 1, -1], rate=8000)",
            "Video('http://x/y.mp4')",
            "import IPython\n"
            "IPython.get_ipython() is get_ipython(), IPython.display.HTML is HTML, IPython.version_info > (8, 24)",
            "import pickle\npickle.loads(pickle.dumps(HTML('q'))).data", "display_html('<p>', raw=True)",
            "Image(data=b'\\xff\\xd8x')",
            "HTML('https://example.org/x')",
        )  # fmt: skip
        self.assertEqual([cell.status for cell in cells].count("error"), 2)
        self.assertEqual(cells[1].of("result")[0]["metadata"], {"image/png": {"width": 30}})
        self.assertIn("<img src", cells[2].data["text/html"])
        self.assertEqual(cells[3].error["name"], "FileNotFoundError")
        self.assertEqual(cells[4].data["application/json"], {"a": 1})
        self.assertEqual(cells[8].data, {"text/plain": "p\nq"})
        self.assertEqual(cells[9].data["text/html"], "<pre><code>a&lt;b</code></pre>")
        self.assertTrue(base64.b64decode(cells[12].data["audio/wav"]).startswith(b"RIFF"))
        self.assertEqual(cells[14].result, "(True, True, True)")
        self.assertEqual(cells[15].result, "'q'")
        self.assertEqual(cells[16].shown, [{"text/html": "<p>"}])
        self.assertIn("image/jpeg", cells[17].data)
        self.assertIn("no network", cells[18].error["value"])

    def test_a_real_ipython_goes_first(self):
        os.mkdir(os.path.join(self.folder, "IPython"))
        with open(os.path.join(self.folder, "IPython", "__init__.py"), "w") as file:
            file.write("real = True")
        self.assertEqual(self.last("import sys; sys.path.insert(0, '')\nimport IPython\nIPython.real").result, "True")

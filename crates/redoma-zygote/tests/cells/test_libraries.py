"""Libraries that show something: tables, figures, formulas."""

import base64
import unittest

from support import Case, has


@unittest.skipUnless(has("pandas") and has("matplotlib"), "needs the runtime's libraries")
class Libraries(Case):
    PLOT = "import matplotlib.pyplot as plt\n"

    def picture(self, data):
        self.assertTrue(base64.b64decode(data["image/png"]).startswith(b"\x89PNG"))

    def test_tables(self):
        for before in ((), ("pandas",)):
            cells = self.cells(
                "import pandas as pd, numpy as np\ndf = pd.DataFrame({'a': range(100)})\ndf", "df['a']",
                "pd.DataFrame(np.zeros((1000, 30)))",
                "wide = pd.DataFrame(np.zeros((2, 15)))\nprint(wide.to_string().count('0.0'), str(wide).count('0.0'))",
                "big = pd.DataFrame(np.zeros((10**6, 2)))\nbig", "5 in Out, _.shape", before=before,
            )  # fmt: skip
            self.assertIn("<table", cells[0].data["text/html"])
            self.assertIn("100 rows", cells[0].data["text/html"])
            self.assertEqual(list(cells[1].data), ["text/plain"])
            self.assertIn("1000 rows × 30 columns", cells[2].data["text/html"])
            self.assertEqual(cells[3].text, "30 30\n")
            self.assertEqual(cells[5].result, "(False, (1000000, 2))")

    def test_figures(self):
        for before in ((), ("matplotlib.pyplot",)):
            cells = self.cells(
                self.PLOT + "plt.plot([1, 2])\nprint('after')",
                "plt.plot([1]); plt.show()\nprint('between')\nplt.plot([2]); plt.show()",
                "fig, ax = plt.subplots()\nax.plot([1, 2])\nfig",
                "fig", "plt.get_fignums()",
                "plt.plot([3]); plt.savefig('x.png');",
                "fig, ax = plt.subplots(); display(fig)",
                "fig, ax = plt.subplots(); display(fig); ax.plot([1]);",
                "plt.figure();", "plt.plot([1]); 1/0", "plt.title('$\\\\nosuch{$');", "plt.get_fignums()",
                "f1 = plt.figure(); plt.plot([1]); f2 = plt.figure(); plt.plot([2]);",
                "fig, ax = plt.subplots(); ax.plot([1]); fig.show()",
                "plt.plot([1]); plt.close('all')",
                "import matplotlib; matplotlib.use('Agg')\nplt.plot([1]); plt.show()",
                "%matplotlib inline\nplt.hist([1, 2, 2]);",
                "import os\nsorted(os.listdir())",
                before=before,
            )  # fmt: skip
            for number, count in ((0, 1), (1, 2), (2, 0), (5, 1), (6, 1), (7, 2), (8, 0), (9, 1), (12, 2), (13, 1),
                (14, 0), (15, 1), (16, 1)):
                self.assertEqual(len(cells[number].shown), count, (number, cells[number].outputs, cells[number].text))
                for data in cells[number].shown:
                    self.picture(data)
            self.assertEqual(cells[1].order, ["display", "between\n", "display"])
            self.picture(cells[2].data)
            self.picture(cells[3].data)
            self.assertEqual([cells[4].result, cells[11].result], ["[]", "[]"])
            self.assertEqual(cells[9].kinds(), ["error", "display"])
            self.assertEqual(cells[10].status, "error")
            self.assertEqual(cells[17].result, "['x.png']")

    def test_plots_of_pandas(self):
        cell = self.last("import pandas as pd", "pd.Series([1, 2]).plot()")
        self.assertEqual(cell.kinds(), ["result", "display"])

    @unittest.skipUnless(has("plotly"), "needs plotly")
    def test_plotly(self):
        for before in ((), ("plotly.io", "plotly.graph_objects")):
            cells = self.cells(
                "import plotly.graph_objects as go\nfig = go.Figure(go.Bar(y=[1, 2]))\nfig", "fig.show()",
                "display(fig)",
                "import plotly.io as pio\npio.show(fig)",
                "import plotly.express as px\npx.line(x=[1, 2], y=[3, 4]).show()",
                before=before,
            )  # fmt: skip
            kind = "application/vnd.plotly.v1+json"
            self.assertEqual(cells[0].data[kind]["data"][0]["type"], "bar")
            self.assertEqual(list(cells[0].data), [kind, "text/plain"])
            for cell in cells[1:]:
                self.assertEqual((cell.status, len(cell.shown), cell.text), ("ok", 1, ""), cell.error)
                self.assertIn(kind, cell.shown[0])

    @unittest.skipUnless(has("PIL"), "needs Pillow")
    def test_pictures(self):
        cell = self.last("from PIL import Image\nImage.new('RGB', (4, 4))")
        self.picture(cell.data)

    @unittest.skipUnless(has("sympy"), "needs sympy")
    def test_formulas(self):
        cells = self.cells("from sympy import *\nx = Symbol('x')\nx ** 2", "init_printing()", "x ** 2", "[x, 1]", "1.5")
        self.assertIn("x^{2}", cells[0].data["text/latex"])
        self.assertEqual([cell.status for cell in cells], ["ok"] * 5, cells[1].error)
        self.assertIn("x^{2}", cells[2].data["text/latex"])

    @unittest.skipUnless(has("tqdm"), "needs tqdm")
    def test_bars(self):
        cell = self.last("from tqdm.auto import tqdm\nfor i in tqdm(range(3)): pass")
        self.assertIn("3/3", cell.text)
        self.assertEqual((cell.status, cell.outputs), ("ok", []))

    @unittest.skipUnless(has("rich"), "needs rich")
    def test_rich_prints_text(self):
        self.assertEqual(self.last("from rich import print as p\np('[b]hi[/b]')").text, "hi\n")

    @unittest.skipUnless(has("seaborn"), "needs seaborn")
    def test_seaborn(self):
        cell = self.last("import seaborn as sns", "sns.scatterplot(x=[1, 2], y=[3, 4]);")
        self.assertEqual(len(cell.shown), 1)

"""How the kernel's parts are loaded: nothing of them is in the way of cells, nor cells in theirs."""

import ast
import os

from support import FOLDER, Case, run_program

PARTS = sorted(name[:-3] for name in os.listdir(FOLDER) if name.startswith("redoma_") and name.endswith(".py"))
# Those that the zygote loads by themselves.
OTHERS = ("redoma_shell", "redoma_node", "redoma_session", "redoma_tools")


class Loading(Case):
    def test_cells_can_not_import_the_parts(self):
        cell = self.last(
            "import sys\nfound = [name for name in sys.modules if name.startswith('redoma_')]\n"
            f"for name in {PARTS!r}:\n    try:\n        __import__(name)\n        found.append(name)\n"
            "    except ModuleNotFoundError:\n        pass\nfound"
        )
        self.assertEqual(cell.result, "[]")

    def test_modules_of_the_same_names_are_the_users(self):
        for name in PARTS:
            with open(os.path.join(self.folder, f"{name}.py"), "w") as file:
                file.write("own = True\n")
        cells = self.cells(
            f"import sys; sys.path.insert(0, '')\nall(__import__(name).own for name in {PARTS!r})",
            "%time 5",
            "from IPython.display import HTML\nHTML('<b>')",
            "!echo {1 + 1}",
            "1/0",
            "%%capture got\n1",
            "%pip list",
            "f = open('x')",
        )
        self.assertEqual([cells[0].result, cells[1].result, cells[3].text], ["True", "5", "2\n"])
        self.assertEqual(cells[2].data["text/html"], "<b>")
        self.assertEqual([cells[4].error["name"], cells[7].error["name"]], ["ZeroDivisionError", "FileNotFoundError"])

    def test_all_parts_are_loaded_at_once_and_little_else(self):
        out = run_program(
            """
            import __future__, json, linecache, time, traceback
            before = set(sys.modules)
            loaded = []
            class Finder:
                def find_spec(self, name, path=None, target=None):
                    loaded.append(name)
            sys.meta_path.insert(0, Finder())
            load()
            print(*sorted(name for name in loaded if name not in before))
            """
        )
        own = [name for name in PARTS if name not in OTHERS]
        self.assertEqual([name for name in out.stdout.split() if name.startswith("redoma_")], own, out.stderr)
        others = [name for name in out.stdout.split() if not name.startswith("redoma_")]
        self.assertLessEqual(set(others), {"_ast", "_signal", "_thread", "binascii", "errno", "gc"})

    def test_parts_guard_their_builtins_and_import_others_at_the_top(self):
        for name in PARTS:
            if name in OTHERS:
                continue
            with open(os.path.join(FOLDER, f"{name}.py")) as file:
                _, first, *rest = ast.parse(file.read()).body
            if name != "redoma_guarded":
                self.assertEqual(ast.unparse(first), "from redoma_guarded import BUILTINS as __builtins__", name)
            for statement in rest:
                for node in ast.walk(statement):
                    if isinstance(node, (ast.Import, ast.ImportFrom)) and node is not statement:
                        modules = [node.module] if isinstance(node, ast.ImportFrom) else [n.name for n in node.names]
                        self.assertFalse([module for module in modules if module.startswith("redoma_")], name)

    def test_what_users_see_is_found_where_ipython_has_it(self):
        cells = self.cells(
            "import pickle\nfrom IPython.display import *\nfrom IPython import display as module\n"
            "kinds = [kind for kind in vars(module).values() if isinstance(kind, type)]\n"
            "same = [pickle.loads(pickle.dumps(kind)) is kind for kind in kinds]\n"
            "sorted({kind.__module__ for kind in kinds}), all(same)",
            "pickle.loads(pickle.dumps(Audio([0.5], rate=8000))).mimetype",
            "display.__module__, pickle.loads(pickle.dumps(display)) is display",
            "%nosuch",
        )
        self.assertEqual(cells[0].result, "(['IPython.core.display'], True)")
        self.assertEqual([cells[1].result, cells[2].result], ["'audio/wav'", "('IPython.core.display', True)"])
        self.assertEqual(cells[3].error["traceback"][-1].split(":")[0], "UsageError")

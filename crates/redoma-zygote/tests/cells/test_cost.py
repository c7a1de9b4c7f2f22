"""What a small cell costs. How long it takes is measured by `make bench`."""

from support import Case, run_program


class Cost(Case):
    def test_a_small_cell_loads_nothing(self):
        out = run_program(
            """
            live = load().Kernel(lambda output: None, {})
            live.run("x = 0", 1)
            count = len(sys.modules)
            live.run("x += 1", 2)
            print(len(sys.modules) - count)
            """
        )
        self.assertEqual((out.returncode, out.stdout.strip()), (0, "0"), out.stderr)

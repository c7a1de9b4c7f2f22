"""`await`, interrupts, and what goes on beside the cells."""

from support import Case, run_program


class Waiting(Case):
    def test_top_level_await(self):
        cells = self.cells(
            "import asyncio\nawait asyncio.sleep(0.01, 'done')",
            "async def numbers():\n    for i in range(3):\n        yield i\nasync for i in numbers(): print(i)",
            "log = []\nasync def work():\n    for i in range(3):\n        await asyncio.sleep(0.01)\n"
            "        log.append(i)\ntask = asyncio.create_task(work())\nawait asyncio.sleep(0)",
            "await task\nlog",
            "asyncio.run(asyncio.sleep(0, 'own loop'))",
            "import contextlib\n@contextlib.asynccontextmanager\nasync def c(): yield 5\n"
            "async with c() as x: print(x)\nx",
            "[await asyncio.sleep(0, i) for i in range(2)]",
            "async def bad(): 1/0\nawait bad()",
            "x = await asyncio.sleep(0, 7)\nx",
            "raise_in = asyncio.sleep(0)\nawait raise_in\nraise SystemExit(4)",
            "%time await asyncio.sleep(0, 9)",
            "%%time\nawait asyncio.sleep(0, 11)",
            "asyncio.get_event_loop().run_until_complete(asyncio.sleep(0, 5))",
            "asyncio.get_event_loop().close()",
            "await asyncio.sleep(0, 6)",
        )
        self.assertEqual(cells[0].result, "'done'")
        self.assertEqual(cells[1].text, "0\n1\n2\n")
        self.assertEqual(cells[3].result, "[0, 1, 2]")
        self.assertEqual(cells[4].result, "'own loop'")
        self.assertEqual((cells[5].text, cells[5].result), ("5\n", "5"))
        self.assertEqual(cells[6].result, "[0, 1]")
        lines = [line for line in cells[7].error["traceback"] if "File" in line]
        self.assertEqual(lines, ['  File "<cell 8>", line 2, in <module>', '  File "<cell 8>", line 1, in bad'])
        self.assertEqual(cells[8].result, "7")
        self.assertEqual(cells[9].error["name"], "SystemExit")
        self.assertEqual([cells[10].result, cells[11].result], ["9", "11"])
        self.assertEqual(cells[14].result, "6")

    def test_asyncio_is_not_loaded_for_others(self):
        self.assertEqual(self.last("import sys", "1/0",
            "'asyncio' in sys.modules, 'subprocess' in sys.modules").result, "(False, False)")

    LATER = "import threading, os, signal, time\nthreading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()\n"

    def test_an_interrupt_ends_the_cell(self):
        cells = self.cells(
            self.LATER + "def f():\n    while True: pass\nf()", "x = 5\nx",
            self.LATER + "time.sleep(30)",
            self.LATER + "import asyncio\ntry:\n    await asyncio.sleep(30)\nfinally:\n    print('cleaned')",
            "await asyncio.sleep(0, 5)",
            self.LATER + "async def spin():\n    while True: pass\nawait spin()",
            self.LATER + "!sleep 30",
            self.LATER + "asyncio.run(asyncio.sleep(30))",
            self.LATER + "class R:\n    def __repr__(self):\n        while True: pass\nR()",
            self.LATER + "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
            self.LATER + "while True: display(1)",
            "6",
            seconds=60,
        )  # fmt: skip
        for number in (0, 2, 3, 5, 6, 7, 8, 10):
            self.assertEqual(cells[number].error["name"], "KeyboardInterrupt", number)
            self.assertIn(f"<cell {number + 1}>", cells[number].trace, number)
            self.assertNotIn("redoma_", cells[number].trace)
        self.assertIn("while True: pass", cells[0].trace)
        self.assertEqual(cells[1].result, "5")
        self.assertEqual(cells[3].text, "cleaned\n")
        self.assertEqual(cells[4].result, "5")
        self.assertEqual(cells[9].error["name"], "E")
        self.assertEqual(cells[11].result, "6")

    def test_an_interrupt_between_cells_does_nothing(self):
        out = run_program(
            """
            import os, signal, time
            live = load().Kernel(print, {})
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            print(live.run("5", 1))
            print(live.run("import signal; signal.signal(signal.SIGINT, signal.default_int_handler)", 2))
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            print("alive")
            """
        )
        self.assertEqual((out.stdout.splitlines()[-1], out.stderr), ("alive", ""))

    def test_threads_and_processes_are_noted_when_that_changes(self):
        cells = self.cells(
            "import threading, time, subprocess\nstop = threading.Event()\n"
            "for i in range(2): threading.Thread(target=stop.wait).start()",
            "1", "stop.set()\ntime.sleep(0.1)", "p = subprocess.Popen(['sleep', '30'])", "2",
            "p.kill()\ntime.sleep(0.1)", "p.wait();",
            "def late():\n    time.sleep(0.2); print('late'); display('late')\nthreading.Thread(target=late).start()",
            "time.sleep(0.5)",
        )  # fmt: skip
        self.assertEqual(cells[0].notes,
            ["2 threads go on: should a later cell have to be ended by force, they are lost"])
        self.assertEqual([cells[1].notes, cells[2].notes], [[], []])
        self.assertEqual(cells[3].notes,
            ["1 process goes on: should a later cell have to be ended by force, it is lost"])
        self.assertEqual([cells[number].notes for number in (4, 5, 6)], [[]] * 3)
        self.assertEqual((cells[8].text, len(cells[8].shown)), ("late\n", 1))

"""What one user feels of another who does their worst: section m.

A victim works alone for a while, then beside a hostile user, then alone again, so that a machine that changes meanwhile is
noticed. The hostile user runs bombs of every kind at the limits of the profile, in as many requests as the server takes:
programs, live sessions, and a queue full of sleepers. Both are users of the same client. Each of
the victim's kinds of requests is compared with itself; the worst ratio counts, and no request may fail.
"""

import os
import threading
import time
from collections import Counter, defaultdict

from http_client import Connection, Requests
from over_http import printed, printed_natively
from processes import Failed
from serving import serving
from tables import Table, number, progress, summary

# Alone before and after, each for this share of the time.
QUIET_SHARE = 0.2
# By then the last of the bombs has reached its limits.
LAST_BOMB = 40
# Rules would turn most bombs away before they run.
UNREAD = '[profiles.default.policy]\nmode = "off"\n'
# After each of the victim's requests, in seconds: a person's programs don't come back to back.
PAUSE = 0.03
# How long the hostile user waits when it was refused. It does not do as it is told, but it does not fight itself either.
HOSTILE_PAUSE = 0.1
# Each kind of bomb is sent with each of these time limits, in milliseconds; and so many sleepers and live sessions beside them.
SHORT, QUEUED, LIVE = (3000, 1500, None), 60, 12
CELL_MILLISECONDS = 4000

BOMBS = {
    "fork bomb": ("py", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"),
    "fork bomb, shell": ("bash", "f() { f | f & }; f; sleep 25"),
    "memory hog": ("py", "held = []\nwhile True: held.append(bytearray(16 << 20))"),
    "memory in files": ("bash", "cd /tmp; i=0; while :; do head -c 64M /dev/zero > f$((i++)); done"),
    "CPU spin": ("py", "import os\nfor _ in range(7): os.fork()\nwhile True: pass"),
    "disk fill": ("py", "n = 0\nwhile True:\n    n += 1\n    try: open(f'f{n % 300}', 'wb').write(b'x' * (1 << 20))\n    except OSError: pass"),
    "many files": ("py", "n = 0\nwhile True:\n    n += 1\n    try: open(f'f{n}', 'w').close()\n    except OSError: n = 0"),
    "output flood": ("py", "import sys\nwhile True: sys.stdout.write('x' * 65536)"),
    "thread bomb": ("py", "import threading\nwhile True:\n    try: threading.Thread(target=lambda: sum(range(10**9))).start()\n    except RuntimeError: pass"),
    "sleeper": ("bash", "sleep 29"),
    "spawn storm": ("bash", "while :; do /bin/true; done"),
    "system calls": ("py", "import os\nwhile True: os.stat('/')"),
    "node spin": ("js", "const {Worker} = require('worker_threads'); for (let i = 0; i < 8; i++) new Worker('for(;;);', {eval: true}); for(;;);"),
}
CELLS = [BOMBS[name] for name in ("CPU spin", "memory hog", "fork bomb", "thread bomb")]


class Hostile:
    """Threads that each send one bomb after the other, until told to end."""

    def __init__(self, server):
        self.address, self.key = server.address, server.key
        self.stop, self.statuses, self.threads = threading.Event(), Counter(), []
        # Some to the profile's limits, the others shorter: so that each kind has its turns, and ends often.
        work = [self.bombs(kind, milliseconds) for milliseconds in SHORT for kind in BOMBS]
        work += [self.bombs("sleeper") for _ in range(QUEUED)]
        work += [self.cells(number) for number in range(LIVE)]
        for steps in work:
            self.threads.append(threading.Thread(target=self.live, args=(steps,), daemon=True))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        end = time.monotonic() + LAST_BOMB
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))

    def bombs(self, kind, milliseconds=None):
        language, code = BOMBS[kind]
        requests = Requests(self.address, self.key, "hostile")
        while True:
            yield requests.post("/v1/exec", {"lang": language, "code": code} | ({"timeout": milliseconds} if milliseconds else {}))

    def cells(self, number):
        requests = Requests(self.address, self.key, "hostile")
        answer = yield requests.post("/api/v1/sessions", {})
        session = answer.json(201)["id"]
        while True:
            language, code = CELLS[number % len(CELLS)]
            body = {"language": language, "code": code, "timeout_ms": CELL_MILLISECONDS}
            yield requests.post(f"/api/v1/sessions/{session}/executions", body)

    def live(self, steps):
        connection, answer = Connection(self.address), None
        try:
            while not self.stop.is_set():
                try:
                    answer, _ = connection.exchange(steps.send(answer))
                    self.statuses[answer.status] += 1
                except Failed:
                    self.statuses["no answer"] += 1
                if answer is None or answer.status >= 400:
                    self.stop.wait(HOSTILE_PAUSE)
        except StopIteration:
            pass
        except Failed:
            self.statuses["no session"] += 1
        finally:
            connection.close()


class Victim:
    """Does what people do. `times` are milliseconds by kind."""

    def __init__(self, server):
        self.connection, self.cells = Connection(server.address), 0
        self.requests = requests = Requests(server.address, server.key, "victim")
        session = self.connection.exchange(requests.post("/api/v1/sessions", {}))[0].json(201)["id"]
        cell = {"language": "py", "code": "x = globals().get('x', 0) + 1; print(x)"}
        table = "import pandas as pd; print(pd.DataFrame({'a': [1, 2]}).a.sum())"
        busy = "print(sum(i * i for i in range(400_000)))"
        self.kinds = {
            "a fresh `print(1)`": (requests.exec("print(1)"), printed("1\n")),
            "a fresh program that uses pandas": (requests.exec(table), printed("3\n")),
            "a fresh program that makes a file": (requests.exec("open('made.txt', 'w').write('x'); print(1)"), printed("1\n")),
            "a fresh program that computes": (requests.exec(busy), printed("21333253333400000\n")),
            "a fresh `echo`, in bash": (requests.post("/v1/exec", {"lang": "bash", "code": "echo 1"}), printed("1\n")),
            "a cell of a live session": (requests.post(f"/api/v1/sessions/{session}/executions", cell), self.counted),
        }

    def counted(self, answer):
        """Each cell finds what the one before it left."""
        self.cells += 1
        printed_natively(f"{self.cells}\n")(answer)

    def work(self, seconds):
        times, failures = defaultdict(list), []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for kind, (request, check) in self.kinds.items():
                try:
                    answer, elapsed = self.connection.exchange(request)
                    check(answer)
                    times[kind].append(elapsed)
                except Failed as failure:
                    failures.append(f"{kind}: {failure}")
                time.sleep(PAUSE)
        return times, failures


def neighbour(bench):
    """(m) Beside a hostile user."""
    bench.stop_engine()
    table = Table("(m) One user beside another who runs bombs of every kind", ["what", "n", "alone p50 ms", "beside p50 ms", "p95 ms", "max ms", "ratio"])
    try:
        with serving(bench.host, "neighbour", UNREAD, patience=60) as server:
            victim = Victim(server)
            victim.work(2)
            progress("the victim alone")
            alone, failed_alone = victim.work(bench.seconds * QUIET_SHARE)
            with Hostile(server) as hostile:
                progress("the victim beside a hostile user")
                time.sleep(1)
                beside, failures = victim.work(bench.seconds)
            progress("the victim alone again")
            # The server does not keep a connection that nobody uses.
            victim.connection.close()
            victim.work(1)
            afterwards, failed_afterwards = victim.work(bench.seconds * QUIET_SHARE)
            if failed_alone or failed_afterwards:
                raise Failed(f"without a neighbour: {(failed_alone + failed_afterwards)[0]}")
            drift = {kind: [summary(times[kind])["p50_ms"] for times in (alone, afterwards)] for kind in victim.kinds}
            for kind, times in afterwards.items():
                alone[kind] += times
            worst = 0.0
            for kind in victim.kinds:
                before, after = summary(alone[kind]), summary(beside[kind])
                ratio = after["p50_ms"] / before["p50_ms"]
                worst = max(worst, ratio)
                table.add(kind, after["n"], before["p50_ms"], after["p50_ms"], after["p95_ms"], after["max_ms"], f"{ratio:.2f}×")
                table.data.append({"name": kind, "ratio": ratio, "alone": before, "beside": after})
            everything = [sorted(sum(times.values(), [])) for times in (alone, beside)]
            before, after = (summary(times)["p50_ms"] for times in everything)
            table.add("all of them", len(everything[1]), before, after, "", max(everything[1]), f"{after / before:.2f}×")
            table.remarks.append(f"Failed requests of the victim: {len(failures)}{', the first: ' + failures[0] if failures else ''}.")
            said = ", ".join(f"{count:,} × {status}" for status, count in sorted(hostile.statuses.items(), key=str))
            table.remarks.append(f"Answers to the hostile user in {number(bench.seconds)} s: {said or 'none'}.")
            said = ", ".join(f"{number(before)} and {number(after)}" for before, after in drift.values())
            table.remarks.append(f"Alone before and after, p50 ms, in the order of the rows: {said}.")
            table.remarks += server.complaints()
            remark = f"{os.cpu_count()} cores"
            bench.figure("neighbour_ratio", after / before, len(failures), remark)
            bench.figure("neighbour_worst_ratio", worst, len(failures), remark)
            bench.figure("neighbour_failures", len(failures))
    except Failed as failure:
        table.add_not_run("redoma serve", str(failure))
    progress("")
    return [table]

"""What one user feels of another who does their worst: section m.

A victim works alone for a while, then beside a hostile user, then alone again, so that a machine that changes meanwhile is
noticed. The hostile user (hostile.py) runs bombs of every kind at the limits of the profile, in as many requests as the server
takes: programs, live sessions, a queue full of sleepers; and it takes whatever else users share. Both are users of the same client. Each of
the victim's kinds of requests is compared with itself; the worst ratio counts, and no request may fail.
"""

import os
import time
from collections import defaultdict

from hostile import Hostile
from http_client import Connection, Requests
from over_http import printed, printed_natively
from processes import Failed
from serving import serving
from tables import Table, number, progress, summary

# Alone before and after, each for this share of the time.
QUIET_SHARE = 0.2
# Rules would turn most bombs away before they run.
UNREAD = '[profiles.default.policy]\nmode = "off"\n'
# After each of the victim's requests, in seconds: a person's programs don't come back to back.
PAUSE = 0.03
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

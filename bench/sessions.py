"""Sessions whose variables live on: section l.

A cell over HTTP beside a real ipykernel's, what checkpoints cost, branches, undoing, a cell that ends its own process, and what
many sessions that nobody uses take. Every answer is checked; in the end a counter must have counted every cell.
"""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import fresh
import memory
from contenders import Contender, command, contender, expect
from http_client import Connection, once
from leaks import opened
from over_http import printed_natively
from processes import Failed
from serving import serving
from tables import Table, number, progress, summary

# Back to back are so many cells, after one that is not counted: another contender was before it.
BURST = 5
APART = 0.05
ADD = "x += 1"
# One after which there has to be a checkpoint: it changes something that is more than a simple value.
KEEP = "kept.append(0)"
FIRST = "x, kept = 0, []"
# 12.5 million numbers of 8 bytes.
FRAME = "import numpy as np, pandas as pd\ndf = pd.DataFrame(np.random.default_rng(0).random((1_250_000, 10)))\nx, kept = 0, []"
WRITE_ALL = "df += 1"
PLAIN = "[profiles.plain]\ncheckpoints = false\n"

SESSIONS = 500
AT_ONCE = 4
PANDAS = 'import pandas as pd; df = pd.DataFrame({"a": range(1000)}); df.a.sum()'
MANY = '[engine]\nkernels = 600\n\n[profiles.default]\nfreeze_after = "2s"\nreclaim_after = "3s"\n'
STARTED_WITHIN, FROZEN_WITHIN, ENDED_WITHIN = 75, 45, 40
SETTLE = 2
WOKEN = 20
MOST_ROUNDS_BESIDE = 100
FRESH = "POST /api/v1/executions, `print(1)`"
BARE, KERNEL = "bare start, `print(1)`", "ipykernel"


class Session:
    """A live session with one connection to it. `added` and `kept` are how often these two cells were run."""

    def __init__(self, requests, connection, made):
        self.requests, self.connection, self.added, self.kept = requests, connection, 0, 0
        self.path = f"/api/v1/sessions/{made['id']}"
        self.add, self.keep = self.request(ADD), self.request(KEEP)

    @classmethod
    def start(cls, server, connection, first_cell, profile=None):
        request = server.requests.post("/api/v1/sessions", {"profile": profile} if profile else {})
        session = cls(server.requests, connection, connection.exchange(request)[0].json(201))
        session.run(first_cell)
        return session

    def request(self, code):
        return self.requests.post(f"{self.path}/executions", {"language": "py", "code": code})

    def run(self, code, printed=None):
        """Runs a cell: milliseconds. `printed` is all that it must print, if that matters."""
        answer, elapsed = self.connection.exchange(self.request(code))
        went_well(answer, printed)
        return elapsed

    def add_one(self):
        answer, elapsed = self.connection.exchange(self.add)
        went_well(answer, "")
        self.added += 1
        return {"ms": elapsed}

    def keep_one(self):
        answer, elapsed = self.connection.exchange(self.keep)
        went_well(answer, "")
        self.kept += 1
        return {"ms": elapsed}

    def check(self):
        """Whether variables are what they should be."""
        self.run("print(x, len(kept))", f"{self.added} {self.kept}\n")

    def post(self, what, document, status=200):
        answer, elapsed = self.connection.exchange(self.requests.post(f"{self.path}/{what}", document))
        return answer.json(status), elapsed

    def state(self):
        return self.connection.exchange(self.requests.get(f"{self.path}/kernel"))[0].json()["state"]

    def remove(self):
        answer = self.connection.exchange(self.requests.make("DELETE", self.path))[0]
        if answer.status != 204:
            answer.json(204)


def went_well(answer, printed):
    said = answer.json()
    cell = said["cell"]
    if said["exit_code"] != 0 or cell["restored"] or cell["lost"] or cell["restarted"]:
        raise Failed(said["stderr"]["text"] or f"a cell ended with {said['ending']}, {said['exit_code']}; of it was said: {cell}")
    if printed is not None:
        expect(said["stdout"]["text"], printed)


class Burst(Contender):
    """Several runs in a row instead of one, after one that is not counted."""

    def __init__(self, name, once, count=BURST, apart=0.0, **more):
        super().__init__(name, once, **more)
        self.count, self.apart = count, apart

    def take(self):
        before = len(self.times)
        super().take()
        del self.times[before:]
        for _ in range(self.count):
            time.sleep(self.apart)
            super().take()


def bursts(name, once):
    """The two ways in which cells are asked for."""
    paced = f"the same, one per {APART * 1000:.0f} ms"
    return [Burst(f"{name}, back to back", once), Burst(f"{name}: {paced}", once, count=1, apart=APART, every=2)]


def live(bench):
    """(l) Live sessions."""
    bench.stop_engine()
    tables = []
    try:
        with serving(bench.host, "sessions", PLAIN) as server:
            connection = Connection(server.address)
            try:
                tables.append(warm_cell(bench, server, connection))
                tables += big_session(bench, server, connection)
            finally:
                connection.close()
                bench.stop_peer_servers()
            tables[-1].remarks += server.complaints()
    except Failed as failure:
        tables.append(not_run("(l) Live sessions", failure))
    return tables + idle_sessions(bench)


def not_run(title, failure):
    table = Table(title, ["what", "p50 ms"])
    table.add_not_run("redoma serve", str(failure))
    return table


def warm_cell(bench, server, connection):
    host, title = bench.host, "(l) A cell `x += 1` in a session that has run others"
    session = Session.start(server, connection, FIRST)
    name = "POST /api/v1/sessions/…/executions"
    own = bursts(name, session.add_one) + bursts(f"`{KEEP}` instead, which needs a checkpoint", session.keep_one)
    try:
        peers = bursts(KERNEL, bench.jupyter().cell(ADD, first="x = 0"))
    except Failed as failure:
        peers = [Contender(KERNEL, why_not=str(failure))]
    bare = contender(BARE, lambda: command([host.python, "-c", "print(1)"], host.environment(), b"1\n"))
    healthz = Burst("only GET /healthz", once(connection, server.requests.get("/healthz"), lambda answer: answer.json()))
    contenders = [bare, *peers, *own, healthz]
    fresh.take_turns(title, contenders, bench.rounds)
    session.check()
    session.remove()
    table = Table(title, ["contender", "p50 ms", "p95", "p99", "min", "n", "× bare start", "× ipykernel"])
    bases = [statistics.median(one.times) if one.times else None for one in (bare, peers[0])]
    for one in contenders:
        add_times(table, one, lambda row: [row["p50_ms"], row["p95_ms"], row["p99_ms"], row["min_ms"], count(row), *ratios(row, bases)])
    row = fresh.row_of(table, own[0].name)
    for figure, base in zip(("cell_bare_ratio", "cell_ipykernel_ratio"), bases):
        if row and base:
            bench.figure(figure, row["p50_ms"] / base, row["failed"])
    table.remarks.append(
        f"Contenders take turns in a random order, {BURST} cells at a time on one connection after one that is not counted; redoma's `x` had counted all in the end. "
        "The ipykernel is asked by a BlockingKernelClient, timed by that: until both the `execute_reply` and the idle status are there. "
        "Ratios are of medians, to the bare start and to the ipykernel's cells back to back. "
        f"After `{ADD}` no checkpoint is made: should its process end, it is run again from the one before. `{KEEP}` is a cell of which that can't be said."
    )
    return table


def ratios(row, bases):
    return [row["p50_ms"] / base if base else None for base in bases]


def count(row):
    return f"{row['n']} ({row['failed']} failed)" if row["failed"] else str(row["n"])


def add_times(table, one, cells):
    """A contender's row, whose cells are made of its numbers."""
    if not one.times:
        table.add_not_run(one.name, one.why_not or f"it failed: {(one.failures or ['never asked'])[-1]}")
        return
    row = {"name": one.name, "failed": len(one.failures), **summary(one.times)}
    table.add(one.name, *cells(row))
    table.data.append(row | {"samples_ms": [round(value, 3) for value in one.times]})
    if one.failures:
        table.remarks.append(f"{one.name} failed {len(one.failures)} times, the last time: {one.failures[-1]}")


def big_session(bench, server, connection):
    """What is measured with 100 MB of variables: checkpoints, then branches and the like."""
    kept, plain = (Session.start(server, connection, FRAME, profile) for profile in (None, "plain"))
    tables = [checkpoints(bench, kept, plain)]
    plain.remove()
    return [*tables, branches(bench, kept)]


def checkpoints(bench, kept, plain):
    title = "(l) What checkpoints cost a session that holds 100 MB"
    columns = ["cell", "without: p50 ms", "p95", "with: p50 ms", "p95", "difference of p50, ms", "n"]
    table = Table(title, columns)
    names = [f"`{KEEP}`, back to back", f"`{KEEP}`, one per {APART * 1000:.0f} ms"]
    pairs = []
    for at, name in enumerate(names):
        pairs.append((name, [bursts(name, session.keep_one)[at] for session in (plain, kept)]))
    writes = f"`{WRITE_ALL}`, which writes to all of it"
    every = 4 if bench.rounds >= 20 else 1

    def write_all(session):
        return lambda: {"ms": session.run(WRITE_ALL, "")}

    pairs.append((writes, [Burst(writes, write_all(session), count=1, every=every) for session in (plain, kept)]))
    fresh.take_turns(title, [one for _, pair in pairs for one in pair], max(3, bench.rounds // 2))
    for name, (without, with_them) in pairs:
        failures = without.failures + with_them.failures
        if not (without.times and with_them.times):
            table.add_not_run(name, f"it failed: {(failures or [without.why_not or with_them.why_not])[-1]}")
            continue
        one, other = summary(without.times), summary(with_them.times)
        row = {"name": name, "without": one, "with": other, "difference_ms": other["p50_ms"] - one["p50_ms"], "failed": len(failures)}
        row["samples_ms"] = [[round(value, 3) for value in each.times] for each in (without, with_them)]
        table.data.append(row)
        table.add(name, one["p50_ms"], one["p95_ms"], other["p50_ms"], other["p95_ms"], row["difference_ms"], min(one["n"], other["n"]))
        if failures:
            table.remarks.append(f"{name} failed {len(failures)} times, the last time: {failures[-1]}")
    for session in (kept, plain):
        session.check()
    row = fresh.row_of(table, names[0])
    bench.figure("checkpoint_ms", row.get("difference_ms"), row.get("failed"))
    row = fresh.row_of(table, names[1])
    bench.figure("checkpoint_paced_ms", row.get("difference_ms"), row.get("failed"))
    table.remarks.append(
        "Two sessions of one server, in turns; without: a profile with `checkpoints = false`. The last row is no target: what the cell "
        "writes to, the checkpoint before it has to keep, so each page is copied."
    )
    return table


class Steps:
    """Times of what is done again and again, by name. A failure ends what failed, and is kept."""

    def __init__(self, title, rounds):
        self.title, self.rounds, self.times, self.failures = title, rounds, {}, {}

    def repeat(self, what, one):
        """`one` is given a function that notes how long something took."""
        def note(name, elapsed):
            self.times.setdefault(name, []).append(elapsed)

        try:
            for at in range(self.rounds):
                progress(f"{self.title}: {what}, {at + 1} of {self.rounds}")
                one(note)
        except (Failed, KeyError, ValueError) as failure:
            self.failures[what] = f"{what}: it failed, and was not tried again: {Failed(failure)}"
        progress("")


def branches(bench, session):
    table = Table("(l) Branch, undo and a killed cell, with 100 MB", ["what", "p50 ms", "p95", "min", "max", "n", "variables"])
    steps = Steps(table.title, max(10, bench.rounds // 10))
    at_once, later = "branch, right after a cell", f"branch, {APART * 1000:.0f} ms after a cell"
    undo, killed = "undo of one cell", "a cell `os._exit(1)` and the next one, `print(x)`"

    def branch(name, pause):
        def one(note):
            session.add_one()
            time.sleep(pause)
            made, elapsed = session.post("branch", {}, 201)
            if not made["has_variables"]:
                raise Failed("the branch has no variables")
            other = Session(session.requests, session.connection, made["session"])
            note(name, elapsed)
            note("the first cell in a branch", other.run("print(x, len(df))", f"{session.added} 1250000\n"))
            other.run("x = -1", "")
            note("the next cell in the original", session.add_one()["ms"])
            other.remove()

        return one

    def undo_one(note):
        session.add_one()
        _, elapsed = session.post("undo", {"cells": 1})
        session.added -= 1
        note(undo, elapsed)
        session.check()

    def kill(note):
        session.add_one()
        start = time.perf_counter()
        said, elapsed = session.post("executions", {"language": "py", "code": "import os; os._exit(1)"})
        if not said["cell"]["restored"]:
            raise Failed(f"of a killed cell was said: {said['cell']}")
        session.check()
        note("the answer to a cell `os._exit(1)`", elapsed)
        note(killed, (time.perf_counter() - start) * 1000)

    steps.repeat(at_once, branch(at_once, 0))
    steps.repeat(later, branch(later, APART))
    steps.repeat(undo, undo_one)
    steps.repeat(killed, kill)
    for name, times in steps.times.items():
        add_steps(table, name, times, "kept")
    table.remarks += steps.failures.values()
    bench.figure("branch_ms", fresh.row_of(table, at_once).get("p50_ms"), int(at_once in steps.failures))
    restarted_kernel(bench, table)
    table.remarks.append(
        "Every branch was looked at: its variables are there, and changing them does not change the original's. The first cell in a branch "
        "stops the original's processes and lets the branch's go on, and the next cell in the original the other way round."
    )
    return table


def add_steps(table, name, times, variables):
    row = summary(times)
    table.add(name, row["p50_ms"], row["p95_ms"], row["min_ms"], row["max_ms"], str(row["n"]), variables)
    table.data.append({"name": name, "failed": 0, "variables": variables, **row, "samples_ms": [round(value, 3) for value in times]})


def restarted_kernel(bench, table):
    name = "ipykernel: `os._exit(1)`, restart, the next cell"
    try:
        times = [bench.jupyter().killed() for _ in range(5 if bench.rounds >= 20 else 2)]
    except Failed as failure:
        table.add_not_run(name, str(failure))
        return
    add_steps(table, name, times, "lost")
    table.remarks.append(
        "The ipykernel is restarted by its manager as soon as its process is gone, which is sooner than by Jupyter's own watch (every 3 s). "
        "It held one number: running again what had made the variables is not counted."
    )


def idle_sessions(bench):
    title = f"(l) {SESSIONS} live sessions that nobody uses"
    table, latency = Table(title, ["what", "before", "with them", "difference"]), Table(f"{title}: a fresh run beside them", [])
    # What other sections left must not go away while memory is looked at.
    bench.stop_peer_servers()
    try:
        with serving(bench.host, "idle-sessions", MANY, patience=60) as server:
            measure_idle(bench, server, table, latency)
            table.remarks += server.complaints()
    except Failed as failure:
        table.add_not_run("redoma serve", str(failure))
    progress("")
    return [table, latency] if latency.rows else [table]


def measure_idle(bench, server, table, latency):
    connections = [Connection(server.address) for _ in range(AT_ONCE)]
    phases = {}
    try:
        phases["before"] = fresh_beside(bench, server, f"{table.title}: before")
        before = held(server)
        start = time.monotonic()
        sessions, failures = start_sessions(server, connections, table.title)
        started_after = time.monotonic() - start
        frozen = wait_for_states(sessions, {"frozen"}, FROZEN_WITHIN)
        time.sleep(SETTLE)
        after = held(server)
        phases["with"] = fresh_beside(bench, server, f"{table.title}: with them")
        # The server closes those that were not used for long; each is opened again when it is used.
        close_all(connections)
        alive = wait_for_states(sessions, {"frozen", "idle", "busy"}, 5)
        woken = wake(sessions, table)
        ended = end_sessions(sessions, connections)
        phases["after"] = fresh_beside(bench, server, f"{table.title}: after")
    finally:
        close_all(connections)
    for name in before:
        table.add(name, before[name], after[name], after[name] - before[name])
        table.data.append({"name": name, "before": before[name], "with": after[name]})
    available, pss = (free(before) - free(after)) / 1024, (after[PSS] - before[PSS]) / 1024
    missing = SESSIONS - alive
    if missing == SESSIONS:
        table.remarks.append("No session was live, so that nothing was measured.")
    else:
        bench.figure(
            "idle_sessions_gib", max(available, pss), missing, f"by what is free {available:.2f}, by PSS {pss:.2f}: the larger one counts"
        )
    table.remarks.append(
        f"{len(sessions)} sessions started in {started_after:.0f} s, {AT_ONCE} at a time, each having run `{PANDAS}`; {frozen} of them were "
        f"frozen when memory was looked at, and {alive} live at the end of it. MemAvailable is the machine's, with whatever else runs on it, "
        "and has all of the kernel's memory in it; PSS has none. What processes that ended gave back stays with their processor for a "
        "while (`/proc/zoneinfo`): it is free, and MemAvailable does not count it, so it is added."
    )
    if failures:
        table.remarks.append(f"{len(failures)} sessions could not be started; the last one: {failures[-1]}")
    if woken:
        row = summary(woken)
        table.data.append({"name": "first cell of a frozen session", **row})
        table.remarks.append(
            f"The first cell of a frozen session, whose sum it must know: p50 {number(row['p50_ms'])} ms, p95 {number(row['p95_ms'])} "
            f"({row['n']} sessions)."
        )
    if ended < len(sessions):
        table.remarks.append(f"Only {ended} sessions were removed within {ENDED_WITHIN} s; the server's end took the others.")
    compare_fresh(bench, latency, phases, missing)


def close_all(connections):
    for connection in connections:
        connection.close()


AVAILABLE, PSS = "memory that the machine has available, MiB", "PSS of all the server's processes, MiB"
KEPT_FREE = "free memory in the processors' own lists, MiB"


def free(seen):
    return seen[AVAILABLE] + seen[KEPT_FREE]


def held(server):
    """What the server and the machine have taken now."""
    tree = server.tree()
    used = memory.usage(tree)
    return {
        AVAILABLE: memory.kib("/proc/meminfo", "MemAvailable") / 1024,
        KEPT_FREE: memory.kept_free() / 1024,
        PSS: used["pss"] / 1024,
        "page tables of these, MiB": used["page_tables"] / 1024,
        "other kernel memory of the machine, MiB": used["kernel"] / 1024,
        "the server's processes": len(tree),
        "open files of its main process": opened(server.pid),
    }


def fresh_beside(bench, server, title):
    """A fresh run and a bare start for comparison, in turns."""
    host, connection = bench.host, Connection(server.address)
    time.sleep(SETTLE)
    request = server.requests.post("/api/v1/executions", {"language": "py", "code": "print(1)"})
    contenders = [
        contender(FRESH, lambda: once(connection, request, printed_natively("1\n"))),
        contender(BARE, lambda: command([host.python, "-c", "print(1)"], host.environment(), b"1\n")),
    ]
    fresh.take_turns(title, contenders, min(bench.rounds, MOST_ROUNDS_BESIDE))
    connection.close()
    return contenders


def compare_fresh(bench, table, phases, missing):
    table.columns = ["what", "before: p50 ms", "p95", "with them: p50 ms", "p95", "after them: p50 ms", "p95", "with ÷ without", "n"]
    for at, name in enumerate((FRESH, BARE)):
        contenders = [phase[at] for phase in phases.values()]
        failures = [failure for one in contenders for failure in one.failures]
        if not all(one.times for one in contenders):
            table.add_not_run(name, f"it failed: {(failures or [one.why_not for one in contenders if one.why_not])[-1]}")
            continue
        rows = [summary(one.times) for one in contenders]
        # The machine's own speed changes meanwhile: so it is what was before and what was after them, together.
        ratio = rows[1]["p50_ms"] / statistics.mean([rows[0]["p50_ms"], rows[2]["p50_ms"]])
        cells = [row[key] for row in rows for key in ("p50_ms", "p95_ms")]
        table.add(name, *cells, ratio, min(row["n"] for row in rows))
        samples = [[round(value, 3) for value in one.times] for one in contenders]
        table.data.append({"name": name, "ratio": ratio, "failed": len(failures), **dict(zip(phases, rows)), "samples_ms": samples})
        if failures:
            table.remarks.append(f"{name} failed {len(failures)} times, the last time: {failures[-1]}")
        if name == FRESH and missing < SESSIONS:
            bench.figure("fresh_beside_sessions_ratio", ratio, len(failures) + missing)
    table.remarks.append("The bare start shows how much slower or faster the machine itself was meanwhile.")


def in_parallel(connections, jobs, deadline):
    """Does jobs on several connections, and begins none when the time is over: results, and why others failed."""
    waiting, results, failures = list(reversed(jobs)), [], []

    def work(connection):
        while waiting and time.monotonic() < deadline:
            try:
                job = waiting.pop()
            except IndexError:
                return
            try:
                results.append(job(connection))
            except (Failed, KeyError, ValueError) as failure:
                failures.append(str(Failed(failure)))

    with ThreadPoolExecutor(len(connections)) as pool:
        try:
            for done in [pool.submit(work, connection) for connection in connections]:
                done.result()
            failures += [f"the time was over, with {len(waiting)} to go"] * len(waiting)
        finally:
            # After Ctrl-C, nothing more is begun.
            waiting.clear()
    return results, failures


def start_sessions(server, connections, title):
    def start(connection):
        progress(f"{title}: starting")
        return Session.start(server, connection, PANDAS)

    return in_parallel(connections, [start] * SESSIONS, time.monotonic() + STARTED_WITHIN)


def wait_for_states(sessions, wanted, within):
    """How many sessions are in one of these states, once all are or the time is over."""
    deadline, others = time.monotonic() + within, list(sessions)
    while True:
        others = [session for session in others if session.state() not in wanted]
        if not others or time.monotonic() > deadline:
            return len(sessions) - len(others)
        time.sleep(1)


def wake(sessions, table):
    """Milliseconds of the first cell in some of them."""
    times = []
    for session in sessions[:: max(1, len(sessions) // WOKEN)][:WOKEN]:
        try:
            times.append(session.run("print(df.a.sum())", "499500\n"))
        except (Failed, KeyError, ValueError) as failure:
            table.remarks.append(f"A session did not wake up: {Failed(failure)}")
    return times


def end_sessions(sessions, connections):
    def end(session):
        def on(connection):
            session.connection = connection
            session.remove()

        return on

    return len(in_parallel(connections, [end(session) for session in sessions], time.monotonic() + ENDED_WITHIN)[0])

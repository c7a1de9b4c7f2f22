"""How long one fresh run takes, from asking to having its output, for one client: sections a, b and c.

The contenders take turns, in another order each round, with a short pause after each: a busy moment of the machine
disturbs all alike, and nobody is measured while the one before still tidies up.
"""

import random
import time
from pathlib import Path

import peers
from contenders import Contender, command, contender
from processes import reap_orphans
from tables import Table, progress, summary

PAUSE = 0.01
TRIES_TO_WARM_UP = 3
FAILURES_UNTIL_OUT = 5
PROGRAMS = Path(__file__).with_name("programs")
COLD, WARM = "redoma run (cold)", "redoma, warm"


def measure(title, contenders, rounds):
    """Everybody's times as a table. The first contender is the one that the others are compared with."""
    take_turns(title, contenders, rounds)
    return latency_table(title, contenders)


def take_turns(title, contenders, rounds):
    for one in contenders:
        if not one.why_not:
            progress(f"{title}: {one.name}")
            warm_up(one)
    for number in range(rounds):
        progress(f"{title}: round {number + 1} of {rounds}")
        able = [one for one in contenders if not one.why_not and number % one.every == 0 and len(one.failures) < FAILURES_UNTIL_OUT]
        random.Random(number).shuffle(able)
        for one in able:
            one.take()
            time.sleep(PAUSE)
        reap_orphans()
    progress("")


def warm_up(one):
    """Fills the page cache, and finds out who can't run here at all."""
    for _ in range(TRIES_TO_WARM_UP if one.every == 1 else 1):
        one.take()
    if not one.times:
        one.why_not = one.failures[-1]
    one.forget()


def latency_table(title, contenders):
    table = Table(title, ["contender", "p50 ms", "p90", "p99", "min", "n", "× bare", "over bare ms"])
    base = summary(contenders[0].times)["p50_ms"] if contenders[0].times else None
    for one in contenders:
        if not one.times:
            table.add_not_run(one.name, one.why_not or f"it failed: {one.failures[-1]}")
            continue
        add_row(table, one.name, one.times, len(one.failures), base)
        if one.failures:
            table.remarks.append(f"{one.name} failed {len(one.failures)} times, the last time: {one.failures[-1]}")
        if one.engine_times:
            add_row(table, f"{one.name}, by the engine's own clock", one.engine_times, 0, base)
            if one.cold:
                table.remarks.append(f"{one.name}: {one.cold} of {len(one.times)} runs found no warm sandbox waiting")
    return table


def add_row(table, name, times, failures, base):
    row = summary(times)
    row |= {"name": name, "failed": failures, "samples_ms": [round(value, 3) for value in times]}
    if base:
        row |= {"ratio": row["p50_ms"] / base, "p99_ratio": row["p99_ms"] / base, "over_bare_ms": row["p50_ms"] - base}
    table.data.append(row)
    count = f"{row['n']} ({failures} failed)" if failures else str(row["n"])
    table.add(name, row["p50_ms"], row["p90_ms"], row["p99_ms"], row["min_ms"], count, row.get("ratio"), row.get("over_bare_ms"))


def row_of(table, name):
    return next((row for row in table.data if row["name"] == name and "not_run" not in row), {})


def quick_four(bench, bare, inside, cold, warm):
    """The contenders of all tables about a tiny program: without isolation, two peers, and ours both ways."""
    host, expected = bench.host, b"1\n"
    return [
        contender("bare, no isolation", lambda: command(bare, host.environment(), expected)),
        contender("bubblewrap", lambda: command(peers.bubblewrap(host, inside), host.environment(), expected)),
        contender("nsjail", lambda: command(peers.nsjail(host, inside), host.environment(), expected)),
        contender(COLD, lambda: command(bench.redoma_run(*cold), host.environment(), expected)),
        contender(WARM, lambda: bench.engine().fresh(*warm, "1\n")),
    ]


def print_one(bench):
    """(a) Python's `print(1)`."""
    host, code = bench.host, "print(1)"
    inside = [peers.INSIDE_PYTHON, "-c", code]
    known = quick_four(bench, [host.python, "-c", code], inside, ["-c", code], ["py", code])
    slow = [
        contender("runsc (gVisor, ptrace)", lambda: command(peers.runsc(host, inside), host.environment(), b"1\n"), every=10),
        contender("docker run", lambda: docker(bench, inside), every=10),
        contender("Jupyter, a new kernel", lambda: bench.jupyter().fresh(code, "1\n"), every=10, settle=bench.close_kernels),
        contender("Open Terminal (not isolated)", lambda: bench.open_terminal().fresh(f"{host.python} -c '{code}'", "1\r\n"), every=4),
    ]
    contenders = known[:3] + slow + known[3:]
    table = measure("(a) A fresh sandbox for Python's `print(1)`", contenders, bench.rounds)
    # Only this table needs them; nothing else should be measured with them around.
    bench.stop_peer_servers()
    warm = row_of(table, WARM)
    bench.figure("print_p50_ratio", warm.get("ratio"), warm.get("failed"))
    bench.figure("print_p99_ratio", warm.get("p99_ratio"), warm.get("failed"))
    cold = row_of(table, COLD)
    for peer in ("bubblewrap", "nsjail"):
        theirs = row_of(table, peer).get("over_bare_ms")
        if theirs and "over_bare_ms" in cold:
            bench.figure(f"cold_over_{peer}", cold["over_bare_ms"] / theirs, cold.get("failed"))
    return [table]


def docker(bench, program):
    daemon = bench.docker()
    return command(daemon.command(program), daemon.environment, b"1\n")


def plot(bench):
    """(b) A table, a summary, a picture, and the picture's bytes back."""
    host, program = bench.host, PROGRAMS / "plot.py"
    code = program.read_text()
    out, bare, wrapped = host.folder("plot-out"), host.folder("plot-bare"), host.folder("plot-bubblewrap")
    wrapped.chmod(0o777)
    (bare / "plot.py").write_text(code)
    (wrapped / "plot.py").write_text(code)
    show = "\nfrom IPython.display import Image, display; display(Image('plot.png'))\n"
    inside = [peers.INSIDE_PYTHON, "plot.py"]
    picture = "plot.png"

    def with_picture(argv, folder, started_in="/"):
        return command(argv, host.environment(), b"12\n", started_in, picture=folder / picture)

    contenders = [
        contender("bare, no isolation", lambda: with_picture([host.python, "plot.py"], bare, bare)),
        contender("bubblewrap", lambda: with_picture(peers.bubblewrap(host, inside, wrapped), wrapped)),
        contender(
            "Jupyter, a new kernel",
            lambda: bench.jupyter().fresh(bench.jupyter().with_packages(code + show), "12\n", picture=True),
            every=5,
            settle=bench.close_kernels,
        ),
        contender(COLD, lambda: with_picture(bench.redoma_run("--out", str(out), str(program)), out)),
        contender(WARM, lambda: bench.engine().fresh("py", code, "12\n", picture=picture)),
    ]
    table = measure("(b) What models do: DataFrame, groupby, plot, PNG back", contenders, max(2, bench.rounds // 4))
    bench.stop_peer_servers()
    warm = row_of(table, WARM)
    bench.figure("plot_ratio", warm.get("ratio"), warm.get("failed"))
    return [table]


def other_languages(bench):
    """(c) Node's `console.log(1)` and bash's `echo 1`."""
    tables = []
    node, code = bench.host.node, "console.log(1)"
    title = "(c) A fresh sandbox for Node's `console.log(1)`"
    if node:
        contenders = quick_four(bench, [node, "-e", code], [node, "-e", code], ["--lang", "js", "-c", code], ["js", code])
        tables.append(measure(title, contenders, max(2, bench.rounds // 2)))
        warm = row_of(tables[0], WARM)
        bench.figure("node_ratio", warm.get("ratio"), warm.get("failed"))
    else:
        table = latency_table(title, [Contender("bare, no isolation", why_not="the runtime has no Node")])
        tables.append(table)
    code = "echo 1"
    shell = ["/usr/bin/bash", "-c", code]
    contenders = quick_four(bench, shell, shell, ["--lang", "bash", "-c", code], ["bash", code])
    tables.append(measure("(c) A fresh sandbox for bash's `echo 1`", contenders, bench.rounds))
    return tables

"""What a waiting sandbox costs in memory: section f.

A process's PSS counts a page that n processes share as 1/n of a page each, so the PSS of a whole tree of processes is what
the tree really takes. With more sandboxes waiting it grows; that growth, divided by their number, is the cost of one. Page
tables and other kernel memory are not part of PSS and stand beside it.
"""

import re
import statistics
import time

from contenders import Engine
from processes import Failed, descendants
from tables import Table, progress

SANDBOXES = 20
KERNELS = 3
SETTLE = 1.5
OTHER_LANGUAGES = {"js", "javascript", "node", "ts", "typescript", "bash", "sh", "shell"}


def kib(path, *names):
    """The sum of some `Name: 123 kB` lines of a file."""
    total = 0
    with open(path) as lines:
        for line in lines:
            if line.split(":")[0] in names:
                total += int(line.split()[1])
    return total


def kept_free():
    """KiB of free pages that the kernel keeps at hand for each processor."""
    with open("/proc/zoneinfo") as file:
        return 4 * sum(int(count) for count in re.findall(r"^\s+count:\s+(\d+)$", file.read(), re.MULTILINE))


def usage(pids):
    """KiB of these processes together, and of the kernel for the whole machine."""
    pss = tables = 0
    for pid in pids:
        try:
            pss += kib(f"/proc/{pid}/smaps_rollup", "Pss")
            tables += kib(f"/proc/{pid}/status", "VmPTE")
        except (FileNotFoundError, ProcessLookupError):
            pass  # it ended meanwhile
        except PermissionError as error:
            raise Failed(f"may not read {error.filename}: run as root") from error
    return {"pss": pss, "page_tables": tables, "kernel": kib("/proc/meminfo", "Slab", "KernelStack", "Percpu")}


def tree_usage(root, more=()):
    return usage({root, *descendants(root), *more})


def growth(before, after, count):
    return {key: (after[key] - before[key]) / count for key in before}


def idle_counts(stats):
    return {pool["name"]: pool["idle"] for pool in stats["pools"]}


def waiting_sandboxes(bench, pool, number):
    """The cost of one more sandbox in this pool, in an engine of its own, so that the other pools stay as they are."""
    engine = Engine(bench.host, f"engine-memory-{pool}-{number}")
    try:
        at_least = idle_counts(engine.stats())[pool]
        engine.ask({"op": "fill", "pool": pool, "count": max(1, at_least)}, timeout=60)
        time.sleep(SETTLE)
        stats = engine.stats()
        idle, before = idle_counts(stats), tree_usage(engine.pid, stats["pids"])
        engine.ask({"op": "fill", "pool": pool, "count": idle[pool] + SANDBOXES}, timeout=120)
        time.sleep(SETTLE)
        stats = engine.stats()
        more, after = idle_counts(stats), tree_usage(engine.pid, stats["pids"])
        others = {name: count for name, count in more.items() if name != pool and count != idle.get(name)}
        if more[pool] <= idle[pool]:
            raise Failed(f"the pool did not grow: {idle[pool]} waited before, {more[pool]} after")
        return growth(before, after, more[pool] - idle[pool]), others
    finally:
        engine.stop()


def idle_kernels(bench, code):
    """The cost of one more idle Jupyter kernel that has run this code."""
    jupyter = bench.jupyter()
    try:
        def open_one():
            return jupyter.ask({"op": "open", "code": code})[0]["pid"]

        pids = [open_one()]
        time.sleep(SETTLE)
        before = usage(pids)
        pids += [open_one() for _ in range(KERNELS)]
        time.sleep(SETTLE)
        return growth(before, usage(pids), KERNELS)
    finally:
        bench.close_kernels()


def waiting(bench):
    """(f) Memory of what waits."""
    columns = ["one more …", "PSS MiB", "page tables MiB", "other kernel memory MiB", "n"]
    table = Table("(f) Memory per idle warm sandbox", columns)

    def add(name, samples, count):
        row = {key: statistics.median(sample[key] for sample in samples) / 1024 for key in samples[0]}
        table.data.append({"name": name, "n": count, **{f"{key}_mib": value for key, value in row.items()}})
        table.add(name, row["pss"], row["page_tables"], row["kernel"], count)

    try:
        pools = idle_counts(bench.engine().stats())
    except Failed as failure:
        table.add_not_run("redoma, warm", str(failure))
        pools = {}
    # The engine of the other sections would share file pages with the one that is measured here.
    bench.stop_engine()
    repeats = 3 if bench.rounds >= 100 else 1
    for pool in pools:
        name, samples = row_name(pool), []
        try:
            for number in range(repeats):
                progress(f"{table.title}: {name}, {number + 1} of {repeats}")
                sample, others = waiting_sandboxes(bench, pool, number)
                samples.append(sample)
                if others:
                    table.remarks.append(f"{name}: other pools changed meanwhile: {others}")
        except Failed as failure:
            table.add_not_run(name, str(failure))
            continue
        add(name, samples, SANDBOXES)
    imports = "import numpy, pandas, matplotlib.pyplot"
    for name, code in (("Jupyter kernel, nothing imported", "pass"), ("Jupyter kernel, numpy, pandas, matplotlib", imports)):
        try:
            progress(f"{table.title}: {name}")
            add(name, [idle_kernels(bench, bench.jupyter().with_packages(code))], KERNELS)
        except Failed as failure:
            table.add_not_run(name, str(failure))
    progress("")
    bench.stop_peer_servers()
    table.remarks.append(
        f"How much the PSS of the whole process tree grows per sandbox when {SANDBOXES} more wait (per kernel: {KERNELS} more); "
        f"{repeats} measurement(s), median. Other kernel memory (slab, stacks, per-CPU) is the machine's, so it is rough."
    )
    # The fullest preload is the dearest pool; the others share more and import less.
    python = [pool for pool in pools if not OTHER_LANGUAGES & set(re.split("[^a-z]+", pool.lower()))]
    costs = [row["pss_mib"] for row in table.data if "pss_mib" in row and row["name"] in map(row_name, python)]
    bench.figure("idle_pss_mib", max(costs, default=None))
    return [table]


def row_name(pool):
    return f"redoma, pool `{pool}`"

"""What many runs leave behind: section h. Counted before, after, and once more when the engine has ended."""

import os
import time

import memory
from contenders import Engine
from load import Requests, drive
from processes import Failed, descendants, process_table, reap_orphans
from tables import Table, progress

RUNS = 2000
WARM_UP = 200
CLIENTS = 4
# Most runs are tiny; some use libraries, other languages, files, processes that stay, and errors.
MIX = [("py", "print(1)")] * 12 + [
    ("py", "import pandas; print(1)"),
    ("py", "open('made.txt', 'w').write('x' * 100_000); print(1)"),
    ("py", "import subprocess; subprocess.Popen(['sleep', '60']); print(1)"),
    ("py", "raise SystemExit(3)"),
    ("py", "import os; os.kill(os.getpid(), 9)"),
    ("js", "console.log(1)"),
    ("bash", "echo 1"),
    ("bash", "sleep 60 & echo 1"),
]


class Mixed(Requests):
    """Runs of all kinds. A program that fails did what it was told to; only the engine can do wrong here."""

    def __init__(self, engine):
        super().__init__(engine)
        self.started = 0

    def start(self):
        language, code = MIX[self.started % len(MIX)]
        self.started += 1
        return self.engine.send({"op": "run", "lang": language, "code": code})

    def wait(self, seconds):
        return [(answer["id"], None if answer.get("ok") else answer.get("error", "refused"), now) for answer, now in self.engine.answers(seconds)]


def lines(path):
    with open(path) as file:
        return sum(1 for _ in file)


def folders_of_runs():
    """Control groups of runs, in all hierarchies."""
    return sum(name.startswith("redoma-run") for _, folders, _ in os.walk("/sys/fs/cgroup") for name in folders)


def memory_groups():
    """Memory control groups that the kernel still keeps, also those whose folder is gone; none if it does not say."""
    try:
        with open("/proc/cgroups") as file:
            return next((int(line.split()[2]) for line in file if line.startswith("memory\t")), None)
    except FileNotFoundError:
        return None


def entries_below(folder):
    return sum(len(folders) + len(files) for _, folders, files in os.walk(folder))


def opened(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def resident(pid):
    try:
        return memory.kib(f"/proc/{pid}/status", "VmRSS")
    except OSError:
        return 0


def count(bench, engine=None):
    """Name of a thing → how many there are."""
    reap_orphans()
    seen = {
        "processes on this machine": sum(state != "Z" for _, state in process_table().values()),
        "zombies on this machine": sum(state == "Z" for _, state in process_table().values()),
        "mounts on this machine": lines("/proc/self/mountinfo"),
        "control groups of runs": folders_of_runs(),
        "memory groups in the kernel": memory_groups(),
        "files and folders in `run/`": entries_below(os.path.join(bench.host.data_dir, "run")),
    }
    if engine:
        tree = {engine.pid, *descendants(engine.pid), *engine.stats()["pids"]}
        seen |= {
            "idle sandboxes": sum(memory.idle_counts(engine.stats()).values()),
            "engine: processes": len(tree),
            "engine: mounts it sees": lines(f"/proc/{engine.pid}/mountinfo"),
            "engine: open files, main process": opened(engine.pid),
            "engine: open files, all processes": sum(opened(pid) for pid in tree),
            "engine: RSS of main process, KiB": resident(engine.pid),
            "engine: PSS of all processes, KiB": memory.usage(tree)["pss"],
        }
    return seen


def settled(engine, like=None, patience=30):
    """Waits until nothing changes any more, or until as many sandboxes wait as before."""
    before, deadline = None, time.monotonic() + patience
    while time.monotonic() < deadline:
        time.sleep(1.5)
        now = memory.idle_counts(engine.stats()), len(descendants(engine.pid))
        if now == before and like in (None, now[0]):
            return now[0]
        before = now
    return before[0]


def leaks(bench):
    """(h) Before and after many runs."""
    runs = max(50, RUNS * min(bench.rounds, 200) // 200)
    table = Table(f"(h) What {runs:,} runs leave behind", ["what", "before", "after", "difference", "after the engine ended", "without an engine"])
    bench.stop_engine()
    reap_orphans()
    try:
        without = count(bench)
        engine = Engine(bench.host, "engine-leaks")
    except Failed as failure:
        table.add_not_run("redoma, warm", str(failure))
        return [table]
    try:
        progress(f"{table.title}: warming up")
        runner = Mixed(engine)
        drive(runner, CLIENTS, count=min(WARM_UP, runs))
        pools = settled(engine)
        before = count(bench, engine)
        progress(f"{table.title}: running")
        load = drive(runner, CLIENTS, count=runs)
        settled(engine, like=pools)
        after = count(bench, engine)
    except Failed as failure:
        table.add_not_run("redoma, warm", str(failure))
        return [table]
    finally:
        engine.stop()
        progress("")
    time.sleep(1)
    ended = count(bench)
    for name in after:
        difference = None if after[name] is None else after[name] - before[name]
        table.add(name, before[name], after[name], difference, ended.get(name), without.get(name))
        table.data.append({"name": name, "before": before[name], "after": after[name], "ended": ended.get(name), "without": without.get(name)})
    table.remarks.append(
        f"{load.runs:,} runs with {CLIENTS} clients in {load.seconds:.1f} s, {load.failed} refused or lost"
        + (f" (the last one: {load.why})" if load.failed else "")
        + "; one run in five uses libraries, writes files, leaves processes behind, fails, or is JavaScript or bash."
    )
    exact = ["mounts on this machine", "control groups of runs", "files and folders in `run/`", "engine: mounts it sees"]
    more = ["engine: processes", "engine: open files, main process", "engine: open files, all processes"]
    # More sandboxes that wait have more processes and open files; that is no leak, and can't be told from one.
    same_pools = before["idle sandboxes"] == after["idle sandboxes"]
    left = sum(max(0, after[name] - before[name]) for name in exact + (more if same_pools else []))
    remark = "" if same_pools else "without processes and open files: the pools' sizes differ"
    bench.figure("left_behind", left, load.failed, remark)
    bench.figure("left_after_end", sum(max(0, ended[name] - without[name]) for name in exact[:3]), load.failed)
    if not same_pools:
        table.remarks.append("Not the same number of sandboxes waited before and after, so processes and open files differ for that reason too.")
    return [table]

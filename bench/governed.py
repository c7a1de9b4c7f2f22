"""What governance costs: section n.

Two servers, one as it comes (rules for programs, an audit on disk) and one without either, are driven by the same many clients in
short turns, one after the other, so that whatever else the machine does disturbs both alike. The programs are those of section j.
"""

import fresh
import http_load
from contenders import contender
from http_client import Connection, once
from over_http import printed
from processes import Failed
from serving import serving
from tables import Table, number, progress, summary

OFF = '[audit]\nenabled = false\n[profiles.default.policy]\nmode = "off"\n'
# A program that is long enough for reading it to be seen.
LONG = "\n".join(f"def step_{n}(values):\n    total = sum(value * {n} for value in values)\n    return total, len(values)\n" for n in range(900)) + "print(1)"


def governed(bench):
    """(n) With rules and an audit, and without."""
    table = Table("(n) The same load with rules and an audit, and without", ["what", "with", "without", "with ÷ without", "n"])
    bench.stop_engine()
    try:
        with serving(bench.host, "governed") as on, serving(bench.host, "plain", OFF) as off:
            throughput(bench, table, on, off)
            latency(bench, table, on, off)
            table.remarks += on.complaints() + off.complaints()
    except Failed as failure:
        table.add_not_run("redoma serve", str(failure))
    return [table]


def throughput(bench, table, on, off):
    """Answers per second of many clients, in turns."""
    turns = max(4, min(12, bench.rounds // 10))
    seconds = max(1.0, bench.seconds / 2 / turns / 2)
    done, failed = {on: [], off: []}, 0
    for turn in range(turns):
        progress(f"{table.title}: turn {turn + 1} of {turns}")
        for server in (on, off) if turn % 2 else (off, on):
            clients = http_load.Clients(server)
            clients.run(seconds, lambda: None)
            failed += sum(clients.errors.values())
            done[server].append(sum(len(times) for times in clients.times.values()) / clients.seconds)
    with_it, without = (sorted(done[server])[len(done[server]) // 2] for server in (on, off))
    ratio = with_it / without
    table.add(f"answers per second to {http_load.CLIENTS} clients, median", number(with_it), number(without), f"{ratio:.3f}", str(turns))
    table.data.append({"name": "throughput", "with": done[on], "without": done[off], "ratio": ratio, "failed": failed})
    bench.figure("governed_ratio", ratio, failed)


def latency(bench, table, on, off):
    """One client, short and long programs."""
    for name, code in {"`print(1)`": "print(1)", f"the same behind {len(LONG) // 1000} KB of Python": LONG}.items():
        connections = [Connection(server.address) for server in (on, off)]
        try:
            both = [
                contender(kind, lambda server=server, connection=connection: once(connection, lambda: server.requests.exec(code), printed("1\n")))
                for kind, server, connection in zip(("with", "without"), (on, off), connections)
            ]
            fresh.take_turns(f"{table.title}: {name}", both, bench.rounds)
        finally:
            for connection in connections:
                connection.close()
        if not all(one.times for one in both):
            table.add_not_run(name, "it failed")
            continue
        with_it, without = (summary(one.times)["p50_ms"] for one in both)
        table.add(f"{name}, p50 ms", f"{with_it:.2f}", f"{without:.2f}", f"{with_it / without:.3f}", str(len(both[0].times)))
        table.data.append({"name": name, "with": with_it, "without": without, "ratio": with_it / without})

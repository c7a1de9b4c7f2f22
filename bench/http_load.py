"""Many clients over HTTP for a while: section j.

One thread drives all connections. What a client does is a generator: it yields requests, is given their answers, and
raises `Failed` if one is not what it should be. Every program prints a number that no other prints, and every file holds it,
so that an answer that went to the wrong client is seen. A client that is told to come back later (429) does so at the time
that it was told.
"""

import heapq
import os
import random
import select
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import memory
from contenders import expect
from http_client import AnswerReader, Connection
from leaks import opened
from load import cpu_seconds
from over_http import FILE_SIZE, printed
from processes import Failed
from serving import serving
from tables import Table, number, progress, summary

CLIENTS = 64
# How long answers may still take when the time is over: the server itself lets a run wait for a minute.
PATIENCE = 90
SETTLE = 5
LONGEST_RETRY = 30
FAILURES_UNTIL_OUT = 1000


def print_number(requests, value):
    answer = yield "exec, prints", requests.exec(f"print({value})")
    printed(f"{value}\n")(answer)


def make_file(requests, value):
    code = f"open('made.txt', 'w').write('{value}\\n'.ljust({FILE_SIZE})); print({value})"
    answer = yield "exec, makes a file", requests.exec(code)
    files = printed(f"{value}\n")(answer).get("files", [])
    expect([file["name"] for file in files], ["made.txt"])
    answer = yield "download of it", requests.get(f"/v1/download/{files[0]['storage_session_id']}/{files[0]['id']}")
    if answer.status != 200:
        answer.json()
    expect(answer.body, f"{value}\n".ljust(FILE_SIZE).encode())


def upload_and_run(requests, value):
    content = f"{value}\n".ljust(FILE_SIZE).encode()
    answer = yield "upload", requests.upload("/v1/upload", {"data.txt": content})
    said = answer.json()
    expect([file["filename"] for file in said["files"]], ["data.txt"])
    reference = {"id": said["files"][0]["fileId"], "name": "data.txt", "storage_session_id": said["storage_session_id"]}
    answer = yield "exec, reads the upload", requests.exec("print(open('data.txt').readline().strip())", [reference])
    printed(f"{value}\n")(answer)


MIX = [print_number] * 8 + [make_file, upload_and_run]


@dataclass
class Client:
    """A connection and what its client is about: the kind of the request under way, its bytes, when it was sent."""

    connection: Connection
    script: object = None
    kind: str = ""
    request: bytes = b""
    sent: float = 0.0
    reader: AnswerReader = field(default_factory=AnswerReader)


class Clients:
    """Drives all of them. `times` are milliseconds by kind of request, `statuses` how often by kind and status."""

    def __init__(self, server):
        self.server, self.clients = server, {}
        self.times, self.statuses, self.errors = defaultdict(list), defaultdict(Counter), Counter()
        self.poll, self.later, self.started = select.epoll(), [], 0
        self.random = random.Random(1)

    def run(self, seconds, halfway):
        """Works for so many seconds, then waits for what is under way. `halfway` is called once, in the middle."""
        start = time.perf_counter()
        self.until, middle, deadline = start + seconds, start + seconds / 2, start + seconds + PATIENCE
        try:
            for _ in range(CLIENTS):
                self.join()
            while self.clients or self.later:
                now = time.perf_counter()
                if middle and now > middle:
                    middle = halfway()
                if now > deadline:
                    self.give_up(f"no answer within {PATIENCE} s")
                    break
                if self.server.process.poll() is not None:
                    raise Failed(f"the server ended: {self.server.last_words()}")
                if sum(self.errors.values()) >= FAILURES_UNTIL_OUT:
                    raise Failed(f"given up after {FAILURES_UNTIL_OUT} errors, the most common: {self.errors.most_common(1)[0][0]}")
                self.wait(now)
        except (Failed, OSError) as failure:
            self.give_up("the server was gone, or of no use")
            raise Failed(failure) from failure
        finally:
            self.seconds = time.perf_counter() - start
            for client in [*self.clients.values(), *(client for _, _, client in self.later)]:
                client.connection.close()
            self.poll.close()

    def wait(self, now):
        """One round: those whose time to try again has come, and those for whom something came."""
        while self.later and self.later[0][0] <= now:
            self.send(heapq.heappop(self.later)[2])
        pause = min(0.5, max(0.0, self.later[0][0] - now)) if self.later else 0.5
        for descriptor, _ in self.poll.poll(pause):
            self.read(self.clients[descriptor])

    def join(self):
        client = Client(Connection(self.server.address))
        client.connection.open()
        self.clients[client.connection.socket.fileno()] = client
        self.poll.register(client.connection.socket, select.EPOLLIN)
        self.begin(client)

    def leave(self, client):
        descriptor = client.connection.socket.fileno()
        self.poll.unregister(descriptor)
        del self.clients[descriptor]
        client.connection.close()

    def begin(self, client):
        """The next thing that this client does; nothing, if the time is over."""
        if time.perf_counter() >= self.until:
            self.leave(client)
            return
        self.started += 1
        client.script = self.random.choice(MIX)(self.server.requests, 1_000_000 + self.started)
        client.kind, client.request = next(client.script)
        self.send(client)

    def send(self, client):
        if client.connection.socket is None:
            return  # lost while it waited to try again; another took its place
        client.sent = time.perf_counter()
        try:
            # It fits into the socket's buffer: nothing else is under way.
            client.connection.socket.sendall(client.request)
        except OSError as error:
            self.lost(client, error)

    def read(self, client):
        try:
            piece = client.connection.socket.recv(1 << 18)
            answer = client.reader.feed(piece) if piece else None
        except (OSError, Failed) as error:
            self.lost(client, error)
            return
        if not piece:
            self.lost(client, "the server closed the connection")
        elif answer:
            self.answered(client, answer, (time.perf_counter() - client.sent) * 1000)

    def answered(self, client, answer, elapsed):
        self.statuses[client.kind][answer.status] += 1
        if answer.status == 429 and answer.headers.get("retry-after", "").isdigit():
            # An honest answer: it is asked again, if there is still time.
            again = time.perf_counter() + min(LONGEST_RETRY, int(answer.headers["retry-after"]))
            if again < self.until:
                heapq.heappush(self.later, (again, self.started, client))
                self.started += 1
            else:
                self.leave(client)
            return
        try:
            asked = client.kind
            client.kind, client.request = client.script.send(answer)
        except StopIteration:
            self.times[asked].append(elapsed)
            self.begin(client)
        except (Failed, KeyError, IndexError, TypeError, ValueError) as error:  # or an answer that makes no sense
            self.errors[f"{asked}: {type(error).__name__ if not isinstance(error, Failed) else ''} {error}"] += 1
            self.begin(client)
        else:
            self.times[asked].append(elapsed)
            self.send(client)

    def lost(self, client, why):
        """Its connection is of no use any more; another takes its place."""
        self.statuses[client.kind]["none"] += 1
        self.errors[f"{client.kind}: {why}"] += 1
        self.leave(client)
        if time.perf_counter() < self.until:
            self.join()

    def give_up(self, why):
        """What is under way is not waited for any longer."""
        for client in self.clients.values():
            self.statuses[client.kind]["none"] += 1
            self.errors[f"{client.kind}: {why}"] += 1


def state(server):
    """What the server holds: its own process, and all below it."""
    main, tree = f"/proc/{server.pid}/status", server.tree()
    return {
        "RSS of the server's process, MiB": memory.kib(main, "VmRSS") / 1024,
        "PSS of all its processes, MiB": memory.usage(tree)["pss"] / 1024,
        "its processes": len(tree),
        "its threads": len(os.listdir(f"/proc/{server.pid}/task")),
        "its open files": opened(server.pid),
    }


def forget_peak(server):
    """From here on VmHWM is the most that was resident since now; where that is not allowed, since it was started."""
    try:
        with open(f"/proc/{server.pid}/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def many_clients(bench):
    """(j) Many clients over HTTP."""
    seconds = bench.seconds
    columns = ["request", "number", "per second", "p50 ms", "p90", "p99", "max", "200", "429", "other", "no answer"]
    table = Table(f"(j) {CLIENTS} clients over HTTP for {number(seconds)} s", columns)
    bench.stop_engine()
    try:
        with serving(bench.host, "many-clients") as server:
            return [table, measure(bench, server, table, seconds)]
    except Failed as failure:
        table.add_not_run("redoma serve", str(failure))
        return [table]


def measure(bench, server, table, seconds):
    progress(f"{table.title}: running")
    clients, seen = Clients(server), {"start": state(server)}
    forget_peak(server)
    cpu, why = cpu_seconds(), None
    try:
        clients.run(seconds, lambda: seen.update(halfway=state(server)))
    except Failed as failure:
        why = str(failure)
    cpu = cpu_seconds() - cpu
    progress("")
    add_rows(table, clients)
    errors = sum(clients.errors.values())
    for reason, count in clients.errors.most_common(5):
        table.remarks.append(f"{count} errors: {str(Failed(reason))}")
    if why:
        errors += 1
        table.remarks.append(f"It did not go on to the end: {why}")
    requests = sum(counts.total() for counts in clients.statuses.values())
    table.remarks.append(
        "Of ten things that a client does, eight are a program that prints, one makes a file of 10 KiB and downloads it, one uploads 10 KiB and "
        f"runs a program that reads it. Every answer's content was checked. The driver used {number(cpu * 1000 / max(1, requests))} ms of CPU per "
        "request, on the same cores."
    )
    table.remarks += server.complaints()
    bench.figure("http_load_errors", errors, remark=f"{number(requests)} requests")
    return held(server, seen)


def add_rows(table, clients):
    everything = [value for times in clients.times.values() for value in times]
    counts = sum(clients.statuses.values(), Counter())
    rows = [("all", everything, counts)]
    rows += [(kind, clients.times[kind], clients.statuses[kind]) for kind in sorted(clients.statuses)]
    for name, times, statuses in rows:
        other = sum(count for status, count in statuses.items() if status not in (200, 429, "none"))
        row = {"name": name, "requests": statuses.total(), "per_second": statuses.total() / clients.seconds}
        row |= {"statuses": {str(status): count for status, count in statuses.items()}, **(summary(times) if times else {})}
        table.data.append(row)
        figures = (row.get(key) for key in ("p50_ms", "p90_ms", "p99_ms", "max_ms"))
        table.add(name, row["requests"], row["per_second"], *figures, statuses[200], statuses[429], other, statuses["none"])


def held(server, seen):
    """A table of what the server held before, meanwhile and afterwards."""
    table = Table("(j) What the server held", ["what", "at the start", "halfway", "peak", "at the end"])
    if server.process.poll() is not None:
        table.add_not_run("redoma serve", "it ended")
        return table
    time.sleep(SETTLE)
    end = state(server)
    peak = {"RSS of the server's process, MiB": memory.kib(f"/proc/{server.pid}/status", "VmHWM") / 1024}
    for name, value in end.items():
        start, halfway = seen["start"][name], seen.get("halfway", {}).get(name)
        table.add(name, start, halfway, peak.get(name), value)
        table.data.append({"name": name, "start": start, "halfway": halfway, "peak": peak.get(name), "end": value})
    table.remarks.append(f"The end is {SETTLE} s after the last answer: more sandboxes wait then than at the start, for many were asked for.")
    return table

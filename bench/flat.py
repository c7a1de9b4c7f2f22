"""Whether a request costs the same however much is stored: section k.

Two servers, one on an empty data folder and one on a full one, are asked the same things in random order, so that whatever else
the machine does disturbs both alike. What is asked about lies in sessions of both that were made in the same way, in the full
folder among those of a user who has many, and each request is about another one of them.
"""

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import fresh
from contenders import contender, expect
from http_client import Connection, Requests, once
from over_http import FILE_SIZE, printed, printed_natively
from processes import Failed
from serving import data_folder, running
from tables import Table, progress, summary

STORED_SESSIONS, STORED_FILES = 100_000, 1_000_000
FILLING_WITHIN = 600
# As whom the servers are asked, and whose sessions big_store.py makes.
CLIENT, USER = "admin", "user-0"
SESSIONS = 100
NAMES = ("a.csv", "b.csv", "c.csv")
CONTENT = (b"a,b\n" + b"1,2\n" * FILE_SIZE)[:FILE_SIZE]
EXEC, IN_SESSION, DOWNLOAD = "exec, `print(1)`", "exec in a session with 3 files", "download of 10 KiB"
# Those that the target is about: what chats wait for.
AIMED_AT = (EXEC, IN_SESSION, DOWNLOAD)


class Asked:
    """A server with sessions to ask about, on one connection."""

    def __init__(self, server, sessions):
        self.requests, self.connection = Requests(server.address, server.key, USER), Connection(server.address)
        self.sessions = [self.new_session() for _ in range(sessions)]

    def ask(self, request, expected=200):
        return self.connection.exchange(request)[0].json(expected)

    def new_session(self):
        """Its path, and that of one of its files' contents."""
        path = "/api/v1/sessions/" + self.ask(self.requests.post("/api/v1/sessions", {}), 201)["id"]
        files = self.ask(self.requests.upload(f"{path}/files", dict.fromkeys(NAMES, CONTENT)), 201)["files"]
        return path, f"{path}/files/{files[0]['id']}/content"

    def things(self):
        """What is asked: name → a `once`."""
        requests, code = self.requests, {"language": "py", "code": "print(len(open('b.csv').read()))"}
        requested = {
            EXEC: ([requests.exec("print(1)")], printed("1\n")),
            IN_SESSION: ([requests.post(f"{path}/executions", code) for path, _ in self.sessions], printed_natively(f"{FILE_SIZE}\n")),
            DOWNLOAD: ([requests.get(content) for _, content in self.sessions], is_content),
            "list of a session's files": ([requests.get(f"{path}/files") for path, _ in self.sessions], lists_all),
            "upload of 10 KiB": ([requests.upload("/v1/upload", {"data.csv": CONTENT})], is_stored),
        }
        return {name: once(self.connection, itertools.cycle(each).__next__, check) for name, (each, check) in requested.items()}


def is_content(answer):
    if answer.status != 200:
        answer.json()
    expect(answer.body, CONTENT)


def lists_all(answer):
    expect(sorted(file["name"] for file in answer.json()["files"]), list(NAMES))


def is_stored(answer):
    expect([file["filename"] for file in answer.json()["files"]], ["data.csv"])


def fill(folder):
    script = Path(__file__).with_name("big_store.py")
    command = [sys.executable, script, folder, "--sessions", STORED_SESSIONS, "--files", STORED_FILES, "--client", CLIENT]
    try:
        subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, timeout=FILLING_WITHIN)
    except subprocess.CalledProcessError as error:
        raise Failed(f"the folder could not be filled: {error.stderr}") from error
    except subprocess.TimeoutExpired as error:
        raise Failed(f"the folder was not filled within {FILLING_WITHIN} s") from error
    # What is still to be written would be written while others are measured.
    os.sync()


def flat(bench):
    """(k) With much stored and with nothing."""
    columns = ["request", "empty: p50 ms", "p90", "full: p50 ms", "p90", "p50 ÷ p50", "p90 ÷ p90", "n"]
    table = Table("(k) The same requests with nothing stored and with much", columns)
    bench.stop_engine()
    try:
        with data_folder(bench.host) as empty, data_folder(bench.host) as full:
            progress(f"{table.title}: filling")
            with running(bench.host, full, "full"):
                pass  # makes the tables
            start = time.monotonic()
            fill(full)
            took = time.monotonic() - start
            with running(bench.host, empty, "empty") as without, running(bench.host, full, "full") as filled:
                compare(bench, table, without, filled)
                table.remarks.append(
                    f"Full: {STORED_SESSIONS:,} sessions and {STORED_FILES:,} files, filled in {took:.0f} s. "
                    f"The empty server was ready after {without.ready_after:.1f} s, the full one after {filled.ready_after:.1f} s."
                )
                table.remarks += without.complaints() + filled.complaints()
    except Failed as failure:
        table.add_not_run("redoma serve", str(failure))
    return [table]


def compare(bench, table, without, filled):
    asked = [Asked(server, min(SESSIONS, max(5, bench.rounds))) for server in (without, filled)]
    try:
        pairs = {}
        for server in asked:
            for name, one in server.things().items():
                pairs.setdefault(name, []).append(contender(name, lambda one=one: one))
        fresh.take_turns(table.title, [one for pair in pairs.values() for one in pair], bench.rounds)
    finally:
        for server in asked:
            server.connection.close()
    for name, pair in pairs.items():
        add_row(table, name, *pair)
    rows = [row for row in table.data if row["name"] in AIMED_AT and "ratio" in row]
    if len(rows) == len(AIMED_AT):
        bench.figure("flat_ratio", max(row["ratio"] for row in rows), sum(row["failed"] for row in rows))


def add_row(table, name, without, filled):
    failures = without.failures + filled.failures
    if not (without.times and filled.times):
        table.add_not_run(name, f"it failed: {(failures or [without.why_not or filled.why_not])[-1]}")
        return
    empty, full = summary(without.times), summary(filled.times)
    row = {"name": name, "empty": empty, "full": full, "failed": len(failures)}
    row |= {"ratio": full["p50_ms"] / empty["p50_ms"], "p90_ratio": full["p90_ms"] / empty["p90_ms"]}
    row["samples_ms"] = [[round(value, 3) for value in one.times] for one in (without, filled)]
    table.data.append(row)
    times = (empty["p50_ms"], empty["p90_ms"], full["p50_ms"], full["p90_ms"])
    table.add(name, *times, row["ratio"], row["p90_ratio"], min(empty["n"], full["n"]))
    if failures:
        table.remarks.append(f"{name} failed {len(failures)} times, the last time: {failures[-1]}")

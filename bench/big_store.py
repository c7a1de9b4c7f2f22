#!/usr/bin/env python3
"""Fills a data folder with very many sessions and files, to measure a server that has been used for years.

    redoma serve --data-dir DIR          # once, until it listens; then end it: that makes the database
    redoma keys create --client bench --data-dir DIR
    bench/big_store.py DIR               # 100,000 sessions, 1,000,000 files, 2,000 of them with bytes

Everything is as the server would have written it, sums included, except that only a sample of the files has bytes:
`redoma sessions check` finds the others missing and nothing else. The sessions are of the client's users, who are named
`user-0`, `user-1`, … (send `User-Id: user-0` with the client's key). What has bytes is listed in DIR/big_store.json.
Filling a folder again adds to what is there.
"""

import argparse
import hashlib
import json
import os
import random
import sqlite3
import sys
import time
import uuid

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
# The version of the database that this knows how to fill.
KNOWN = 1
DAY = 86_400_000
NAMES = [("data/sales.csv", "text/csv"), ("plot.png", "image/png"), ("report.pdf", "application/pdf"),
         ("notes.txt", "text/plain"), ("model.json", "application/json")]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_dir")
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=1_000_000, help="of all sessions together")
    parser.add_argument("--with-bytes", type=int, default=2_000, help="how many of them are really there")
    parser.add_argument("--users", type=int, default=1_000, help="among whom the sessions are shared out")
    parser.add_argument("--client", default="bench", help="the client whose key opens them")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


class Ids:
    """Ids of 21 letters, many at once."""

    def __init__(self, rng):
        self.rng = rng
        self.table = bytes(LETTERS[byte & 63].encode()[0] for byte in range(256))

    def new(self):
        return self.rng.randbytes(21).translate(self.table).decode()


def content_of(number):
    """The bytes of the file with this number: small, and each different."""
    return (f"file {number}\n" * (1 + number % 40)).encode()


def sessions(args, ids, rng, now, first_file):
    """Rows of sessions and of their files, session by session."""
    chosen = set(rng.sample(range(args.files), min(args.with_bytes, args.files)))
    number = 0
    for index in range(args.sessions):
        # Shared out evenly, to the last one.
        count = args.files * (index + 1) // args.sessions - args.files * index // args.sessions
        session, user = ids.new(), f"user-{index % args.users}"
        used = now - rng.randrange(20 * DAY)
        ttl = None if index % 10 == 0 else 365 * DAY
        files, size = [], 0
        for position in range(count):
            name, kind = NAMES[position % len(NAMES)]
            # Every fifth file is a later version of the first one.
            is_again = position % 5 == 4
            versions = 1 + count // 5
            version = 2 + position // 5 if is_again else 1
            name = NAMES[0][0] if is_again else f"{position}-{name}" if position else name
            kind = NAMES[0][1] if is_again else kind
            is_current = int(version == versions if name == NAMES[0][0] else True)
            file_uuid = uuid.UUID(bytes=rng.randbytes(16), version=4)
            blob = f"{user}/{session}/{file_uuid}.{name.rsplit('.', 1)[1]}"
            if number in chosen:
                content = content_of(first_file + number)
                length, digest = len(content), hashlib.sha256(content).hexdigest()
            else:
                content, length, digest = None, 1 + rng.randrange(100_000), f"{first_file + number:064x}"
            row = (ids.new(), session, name, version, is_current, length, digest, kind,
                   "artifact" if is_again else "upload", 0, used, None, blob)
            files.append((row, content))
            size += length
            number += 1
        row = (session, args.client, user, f"conversation {index}", "default", None, None, used, used, ttl,
               None if ttl is None else used + ttl, size, count)
        yield row, files


def place(storage, blob, content):
    path = os.path.join(storage, blob)
    for folder in (os.path.dirname(os.path.dirname(path)), os.path.dirname(path)):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def own_like(path, other):
    """Root may fill a plain user's folder, who must still be able to use it."""
    meta = os.stat(other)
    if os.geteuid() == 0 and meta.st_uid != 0:
        for folder, folders, files in os.walk(path):
            for name in [folder, *(os.path.join(folder, entry) for entry in folders + files)]:
                os.chown(name, meta.st_uid, meta.st_gid, follow_symlinks=False)


def main():
    args = arguments()
    started = time.monotonic()
    database, storage = os.path.join(args.data_dir, "redoma.db"), os.path.join(args.data_dir, "storage")
    if not os.path.exists(database):
        sys.exit(f"{database} is not there: start `redoma serve --data-dir {args.data_dir}` once, it makes it")
    connection = sqlite3.connect(database, isolation_level=None)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != KNOWN:
        sys.exit(f"the database has version {version}, this program knows {KNOWN}")
    rng = random.Random(args.seed ^ connection.execute("SELECT count(*) FROM sessions").fetchone()[0])
    first_file = connection.execute("SELECT count(*) FROM files").fetchone()[0]
    # Nothing is lost if this ends early: the transaction is one.
    connection.executescript("PRAGMA synchronous = off; PRAGMA cache_size = -400000; PRAGMA temp_store = memory")
    indexes = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL").fetchall()
    connection.execute("BEGIN IMMEDIATE")
    # Built at the end, each at once, they cost a fraction.
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    usage, sample, file_rows, session_rows = {}, [], [], []

    def flush():
        connection.executemany("INSERT INTO sessions (id, client, user, name, profile, resource_kind, resource_id, "
                               "created_at, used_at, ttl, expires_at, bytes, files) VALUES "
                               "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", session_rows)
        connection.executemany("INSERT INTO files (id, session, name, version, is_current, size, sha256, content_type, "
                               "origin, read_only, created_at, execution, blob) VALUES "
                               "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", sorted(file_rows))
        session_rows.clear()
        file_rows.clear()

    now = int(time.time() * 1000)
    for session, files in sessions(args, Ids(rng), rng, now, first_file):
        session_rows.append(session)
        for row, content in files:
            file_rows.append(row)
            if content is not None:
                place(storage, row[-1], content)
                sample.append({"user": session[2], "session": row[1], "file": row[0], "name": row[2], "sha256": row[6]})
        held = usage.setdefault(session[2], [0, 0])
        held[0] += session[-2]
        held[1] += session[-1]
        if len(file_rows) >= 250_000:
            flush()
    flush()
    connection.executemany(
        "INSERT INTO usage (client, user, bytes, files) VALUES (?, ?, ?, ?) "
        "ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes, files = files + excluded.files",
        [(args.client, user, size, count) for user, (size, count) in usage.items()])
    for _, sql in indexes:
        connection.execute(sql)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    listing = os.path.join(args.data_dir, "big_store.json")
    with open(listing, "w", encoding="utf-8") as file:
        json.dump(sample, file)
    own_like(storage, database)
    print(f"{args.sessions} sessions and {args.files} files of client {args.client} in "
          f"{time.monotonic() - started:.1f} s; {len(sample)} files have bytes: {listing}")


if __name__ == "__main__":
    main()

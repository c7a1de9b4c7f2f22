"""The least that speaks HTTP/1.1 to one server: bytes made beforehand go out in one call, the answer comes back by its
Content-Length. Python's own client costs several times as much per request, and that would be counted as the server's.
What is left of it shows in section i, which asks /healthz in the same way.
"""

import json
import socket
import struct
import time
from dataclasses import dataclass

from processes import Failed

PATIENCE = 60
NO_CONTENT = 204
BOUNDARY = "redoma-bench-boundary"


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    def json(self, expected=200):
        """The body of an answer that went well."""
        if self.status != expected:
            raise Failed(f"HTTP {self.status}: {self.body[:160].decode(errors='replace')}")
        return json.loads(self.body)


class AnswerReader:
    """Puts one answer together from the pieces in which it comes."""

    def __init__(self):
        self.seen, self.headers, self.status, self.length = b"", None, 0, 0

    def feed(self, piece):
        """The answer, once it is complete."""
        self.seen += piece
        if self.headers is None:
            head, end, rest = self.seen.partition(b"\r\n\r\n")
            if not end:
                return None
            first, *lines = head.decode("latin-1").split("\r\n")
            self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            self.status, self.seen = int(first.split()[1]), rest
            if "content-length" not in self.headers and self.status != NO_CONTENT:
                raise Failed(f"an answer without Content-Length: {first}")
            self.length = int(self.headers.get("content-length", 0))
        if len(self.seen) < self.length:
            return None
        answer = Answer(self.status, self.headers, self.seen)
        self.seen, self.headers = b"", None
        return answer


class Requests:
    """Makes requests for one server, with its key and for a user if one is named, as bytes."""

    def __init__(self, address, key, user=None):
        self.always = "Host: {}:{}\r\n".format(*address) + f"X-API-Key: {key}\r\n" + (f"User-Id: {user}\r\n" if user else "")

    def make(self, method, path, body=b"", kind="application/json"):
        head = f"{method} {path} HTTP/1.1\r\n{self.always}"
        if method != "GET":
            head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        return f"{head}\r\n".encode() + body

    def get(self, path):
        return self.make("GET", path)

    def post(self, path, document):
        return self.make("POST", path, json.dumps(document).encode())

    def exec(self, code, files=()):
        """A program over LibreChat's route."""
        return self.post("/v1/exec", {"lang": "py", "code": code} | ({"files": list(files)} if files else {}))

    def upload(self, path, files):
        """Files as name → bytes."""
        parts = [
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
            f"Content-Type: application/octet-stream\r\n\r\n".encode()
            + content
            + b"\r\n"
            for name, content in files.items()
        ]
        body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
        return self.make("POST", path, body, f"multipart/form-data; boundary={BOUNDARY}")


class Connection:
    """One connection that stays open, one request at a time. Opened again if the last exchange went wrong."""

    def __init__(self, address):
        self.address, self.socket = address, None

    def open(self):
        try:
            self.socket = socket.create_connection(self.address, timeout=PATIENCE)
        except OSError as error:
            raise Failed(f"can't connect: {error}") from error
        # A time limit of the kernel's: with one of Python's, each read is two system calls.
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", PATIENCE, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self):
        if self.socket:
            self.socket.close()
            self.socket = None

    def exchange(self, request):
        """The answer, and milliseconds from before the request was sent (or the connection opened) until it was there."""
        reader = AnswerReader()
        start = time.perf_counter()
        try:
            if self.socket is None:
                self.open()
            self.socket.sendall(request)
            while True:
                piece = self.socket.recv(1 << 16)
                if not piece:
                    raise Failed("the server closed the connection")
                answer = reader.feed(piece)
                if answer:
                    return answer, (time.perf_counter() - start) * 1000
        except BlockingIOError as error:
            self.close()
            raise Failed(f"no answer within {PATIENCE} s") from error
        except OSError as error:
            self.close()
            raise Failed(error) from error
        except Failed:
            self.close()
            raise


def once(connection, request, check, keep=True):
    """A contender's `once`: one exchange, its answer checked afterwards. `keep` is whether the connection stays."""

    def one():
        answer, elapsed = connection.exchange(request() if callable(request) else request)
        if not keep:
            connection.close()
        check(answer)
        return {"ms": elapsed}

    return one

"""A user who does their worst, for section m: bombs at the limits of a profile, and everything else that users of one server
share. Each thread repeats one attack until it is told to end; counts and sizes are bounded. The threads have a process of their
own: Python runs one thread of a process at a time, so in one process the victim's requests would wait for the hostile user's.
"""

import multiprocessing
import secrets
import socket
import threading
import time
from collections import Counter

from http_client import Connection, Requests
from processes import Failed

# By then the last of the bombs has reached its limits.
LAST_BOMB = 40
# How long the hostile user waits when it was refused. It does not do as it is told, but it does not fight itself either.
HOSTILE_PAUSE = 0.1
# Each kind of bomb is sent with each of these time limits, in milliseconds; numbers of sleepers and of live sessions beside them.
SHORT, QUEUED, LIVE = (3000, 1500, None), 60, 12
CELL_MILLISECONDS = 4000

BOMBS = {
    "fork bomb": ("py", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"),
    "fork bomb, shell": ("bash", "f() { f | f & }; f; sleep 25"),
    "memory hog": ("py", "held = []\nwhile True: held.append(bytearray(16 << 20))"),
    "memory in files": ("bash", "cd /tmp; i=0; while :; do head -c 64M /dev/zero > f$((i++)); done"),
    "CPU spin": ("py", "import os\nfor _ in range(7): os.fork()\nwhile True: pass"),
    "disk fill": ("py", "n = 0\nwhile True:\n    n += 1\n    try: open(f'f{n % 300}', 'wb').write(b'x' * (1 << 20))\n    except OSError: pass"),
    "many files": ("py", "n = 0\nwhile True:\n    n += 1\n    try: open(f'f{n}', 'w').close()\n    except OSError: n = 0"),
    "output flood": ("py", "import sys\nwhile True: sys.stdout.write('x' * 65536)"),
    "thread bomb": ("py", "import threading\nwhile True:\n    try: threading.Thread(target=lambda: sum(range(10**9))).start()\n    except RuntimeError: pass"),
    "sleeper": ("bash", "sleep 29"),
    "spawn storm": ("bash", "while :; do /bin/true; done"),
    "system calls": ("py", "import os\nwhile True: os.stat('/')"),
    "node spin": ("js", "const {Worker} = require('worker_threads'); for (let i = 0; i < 8; i++) new Worker('for(;;);', {eval: true}); for(;;);"),
    # Memory of Linux itself that no control group counts, unless the sandbox bounds it.
    "record locks": ("py", "import fcntl\nfile = open('locks', 'w+')\nn = 0\nwhile True:\n    n += 2\n    try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, n)\n    except OSError: n = 0"),
    "open folders": ("py", "import os\nfor n in range(2000): open(f'f{n}', 'w').close()\nheld = []\nwhile True:\n    try:\n        held.append(os.open('.', os.O_RDONLY)); os.listdir(held[-1])\n    except OSError:\n        for fd in held: os.close(fd)\n        held = []"),
    "socket filters": ("py", "import ctypes, socket, struct\ncode = struct.pack('HBBI', 6, 0, 0, 65535)\nbuffer = ctypes.create_string_buffer(code)\nprogram = struct.pack('HxxxxxxP', 1, ctypes.addressof(buffer))\nheld = []\nwhile True:\n    try:\n        held.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)); held[-1].setsockopt(socket.SOL_SOCKET, 26, program)\n    except OSError: held = []"),
    # Records and answers that grow with what a run leaves behind.
    "long links": ("py", "import os\nfor n in range(4000): os.symlink('x' * 4000, f'{n:0240}')"),
    "many artifacts": ("py", "for n in range(9000): open(f'{n:0200}.txt', 'w').close()"),
}
# Cells that make their session's process say things without end.
FLOOD = """
import os
[pipe] = [n for n in range(100, 300) if os.path.exists(f'/proc/self/fd/{n}') and os.readlink(f'/proc/self/fd/{n}').startswith('pipe:')]
for _ in range(4):
    if os.fork() == 0:
        while True: os.write(pipe, b'{}' + bytes([10]))
"""
# Unfinished WebSocket messages, padded bodies, conversations, sessions and connections: threads of each kind.
SOCKETS, PADDED, TALKS, OPENED, IDLE = 20, 8, 2, 2, 2
UNFINISHED_BYTES = 7 << 20
IDLE_CONNECTIONS = 400
# Between two requests that cost the server little. Without a pause the threads of this program take most of the two processors that
# the victim's programs run on, and the bench measures itself.
FLOOD_PAUSE = 0.02
CELLS = [BOMBS[name] for name in ("CPU spin", "memory hog", "fork bomb", "thread bomb")] + [("py", FLOOD)]


class Hostile:
    """The process of the hostile user. `statuses` counts the answers that it got, once it has ended."""

    def __init__(self, server):
        forked = multiprocessing.get_context("fork")
        self.statuses, self.pipe, other_end = Counter(), *forked.Pipe()
        self.process = forked.Process(target=attack_until_told, args=(server.address, server.key, other_end), daemon=True)

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *_):
        self.pipe.send("end")
        if self.pipe.poll(LAST_BOMB + 10):
            self.statuses = self.pipe.recv()
        self.process.kill()
        self.process.join()


def attack_until_told(address, key, pipe):
    with Attacks(address, key) as attacks:
        pipe.recv()
    pipe.send(attacks.statuses)


class Attacks:
    """Threads that each send one bomb after the other, until told to end."""

    def __init__(self, address, key):
        self.address, self.key = address, key
        self.stop, self.statuses, self.threads = threading.Event(), Counter(), []
        # Bombs run to the profile's limits or to shorter ones, so that each kind has its turns and ends often.
        work = [self.bombs(kind, milliseconds) for milliseconds in SHORT for kind in BOMBS]
        work += [self.bombs("sleeper") for _ in range(QUEUED)]
        work += [self.cells(number) for number in range(LIVE)]
        work += [self.padded() for _ in range(PADDED)] + [self.talks() for _ in range(TALKS)] + [self.opened() for _ in range(OPENED)]
        for steps in work:
            self.threads.append(threading.Thread(target=self.live, args=(steps,), daemon=True))
        for hold in [self.unfinished] * SOCKETS + [self.idle] * IDLE:
            self.threads.append(threading.Thread(target=self.hold, args=(hold,), daemon=True))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        end = time.monotonic() + LAST_BOMB
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))

    def bombs(self, kind, milliseconds=None):
        language, code = BOMBS[kind]
        requests = Requests(self.address, self.key, "hostile")
        while True:
            yield requests.post("/v1/exec", {"lang": language, "code": code} | ({"timeout": milliseconds} if milliseconds else {}))

    def cells(self, number):
        requests = Requests(self.address, self.key, "hostile")
        answer = yield requests.post("/api/v1/sessions", {})
        session = answer.json(201)["id"]
        while True:
            language, code = CELLS[number % len(CELLS)]
            body = {"language": language, "code": code, "timeout_ms": CELL_MILLISECONDS}
            yield requests.post(f"/api/v1/sessions/{session}/executions", body)

    def padded(self):
        """Small programs that wait, in large bodies."""
        requests = Requests(self.address, self.key, "hostile")
        body = b'{"lang": "bash", "code": "sleep 20"}' + b" " * UNFINISHED_BYTES
        while True:
            yield requests.make("POST", "/v1/exec", body)

    def talks(self):
        """Each request is a conversation of its own."""
        requests = Requests(self.address, self.key, "hostile")
        while True:
            self.stop.wait(FLOOD_PAUSE)
            yield requests.post("/v1/exec", {"lang": "cobol", "code": "x", "runtime_session_hint": secrets.token_hex(8)})

    def opened(self):
        requests = Requests(self.address, self.key, "hostile")
        while True:
            self.stop.wait(FLOOD_PAUSE)
            yield requests.post("/api/v1/sessions", {"name": "x" * 100})

    def hold(self, attack):
        while not self.stop.is_set():
            held = []
            try:
                attack(held)
                self.statuses["held"] += len(held)
            except (OSError, Failed):
                self.statuses["not held"] += 1
            self.stop.wait(5)
            for connection in held:
                connection.close()

    def unfinished(self, held):
        """A WebSocket message whose last bytes do not come."""
        requests = Requests(self.address, self.key, "hostile")
        session = Connection(self.address).exchange(requests.post("/api/v1/sessions", {}))[0].json(201)["id"]
        held.append(socket.create_connection(self.address, timeout=5))
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        head = f"GET /api/v1/sessions/{session}/executions/ws HTTP/1.1\r\n{requests.always}{upgrade}\r\n"
        held[0].sendall(head.encode())
        if b" 101 " not in held[0].recv(4096):
            raise Failed("refused")
        held[0].sendall(b"\x81\xff" + (UNFINISHED_BYTES + 1).to_bytes(8, "big") + bytes(4) + b" " * UNFINISHED_BYTES)

    def idle(self, held):
        """Connections that say nothing."""
        for _ in range(IDLE_CONNECTIONS):
            held.append(socket.create_connection(self.address, timeout=5))

    def live(self, steps):
        connection, answer = Connection(self.address), None
        try:
            while not self.stop.is_set():
                try:
                    answer, _ = connection.exchange(steps.send(answer))
                    self.statuses[answer.status] += 1
                except Failed:
                    self.statuses["no answer"] += 1
                if answer is None or answer.status >= 400:
                    self.stop.wait(HOSTILE_PAUSE)
        except StopIteration:
            pass
        except Failed:
            self.statuses["no session"] += 1
        finally:
            connection.close()

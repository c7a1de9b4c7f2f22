"""What one client waits for over HTTP: section i. As sections a and b, with a `redoma serve` and all that it does for a run:
a key to look up, a session and an execution to remember, files to bring to disk.
"""

import fresh
from contenders import check_picture, command, contender, expect
from http_client import Connection, once
from processes import Failed
from serving import serving
from tables import Table

FILE_SIZE = 10 * 1024
EXEC = "POST /v1/exec, `print(1)`"
# Makes a file that is different each time, as those of programs are.
MAKE_FILE = f"import os; open('made.txt', 'w').write(os.urandom({FILE_SIZE // 2}).hex()); print(1)"


def printed(text):
    """Checks that LibreChat's route says that exactly this was printed."""

    def check(answer):
        said = answer.json()
        if said["code"] != 0:
            raise Failed(said["stderr"] or f"exit code {said['code']}")
        expect(said["stdout"], text)
        return said

    return check


def printed_natively(text):
    """The same for the native route."""

    def check(answer):
        said = answer.json()
        if said["exit_code"] != 0:
            raise Failed(said["stderr"]["text"] or f"exit code {said['exit_code']}")
        expect(said["stdout"]["text"], text)
        return said

    return check


def made_one_file(answer):
    said = printed("1\n")(answer)
    if [file["name"] for file in said.get("files", [])] != ["made.txt"]:
        raise Failed(f"the answer names {said.get('files')} instead of made.txt")
    return said


def healthy(answer):
    expect(answer.json()["status"], "ok")


def upload(connection, requests, files):
    """Uploads to a new session, by LibreChat's route: its id, and what later requests name the files by."""
    said = connection.exchange(requests.upload("/v1/upload", files))[0].json()
    references = [{"id": file["fileId"], "name": file["filename"], "storage_session_id": said["session_id"]} for file in said["files"]]
    return said["session_id"], references


def one_client(bench):
    """(i) Over HTTP, for one client."""
    title = "(i) A fresh `print(1)` over HTTP"
    bench.stop_engine()
    try:
        with serving(bench.host, "one-client") as server:
            connection = Connection(server.address)
            try:
                tables = [programs(bench, server, connection, title), plot(bench, server, connection)]
            finally:
                connection.close()
            tables[0].remarks += server.complaints()
            return tables
    except Failed as failure:
        table = Table(title, ["contender", "p50 ms"])
        table.add_not_run("redoma serve", str(failure))
        return [table]


def programs(bench, server, kept, title):
    host, requests, new = bench.host, server.requests, Connection(server.address)
    content = (b"a,b\n" + b"1,2\n" * FILE_SIZE)[:FILE_SIZE]
    _, references = upload(kept, requests, {"input.csv": content})
    reading = requests.exec("print(len(open('input.csv').read()))", references)
    native = requests.post("/api/v1/executions", {"language": "py", "code": "print(1)"})
    rows = [
        (EXEC, lambda: once(kept, requests.exec("print(1)"), printed("1\n"))),
        ("the same, a new connection each", lambda: once(new, requests.exec("print(1)"), printed("1\n"), keep=False)),
        ("POST /api/v1/executions, `print(1)`", lambda: once(kept, native, printed_natively("1\n"))),
        ("POST /v1/exec, reads a file of 10 KiB", lambda: once(kept, reading, printed(f"{FILE_SIZE}\n"))),
        ("POST /v1/exec, makes a file of 10 KiB", lambda: once(kept, requests.exec(MAKE_FILE), made_one_file)),
        ("only GET /healthz", lambda: once(kept, requests.get("/healthz"), healthy)),
        ("only GET /healthz, a new connection each", lambda: once(new, requests.get("/healthz"), healthy, keep=False)),
    ]
    bare = contender("bare, no isolation", lambda: command([host.python, "-c", "print(1)"], host.environment(), b"1\n"))
    table = fresh.measure(title, [bare, *(contender(name, make) for name, make in rows)], bench.rounds)
    table.remarks.append("Asking /healthz is what the driver, the connection and the server's HTTP cost without a run: part of all rows above.")
    print_one = fresh.row_of(table, EXEC)
    bench.figure("http_print_p50_ratio", print_one.get("ratio"), print_one.get("failed"))
    return table


def plot(bench, server, connection):
    host, program = bench.host, (fresh.PROGRAMS / "plot.py").read_text()
    shown = program.replace('figure.savefig("plot.png")', "plt.show()")
    folder = host.folder("plot-http")
    (folder / "plot.py").write_text(program)
    request = server.requests.exec(shown)

    def with_picture():
        answer, elapsed = connection.exchange(request)
        said = printed("12\n")(answer)
        if len(said.get("files", [])) != 1:
            raise Failed(f"one picture was shown, and the answer names {said.get('files')}")
        file = said["files"][0]
        picture, more = connection.exchange(server.requests.get(f"/v1/download/{file['storage_session_id']}/{file['id']}"))
        if picture.status != 200:
            raise Failed(f"HTTP {picture.status} for {file['name']}")
        check_picture(picture.body)
        return {"ms": elapsed + more}

    bare = command([host.python, "plot.py"], host.environment(), b"12\n", folder, picture=folder / "plot.png")
    contenders = [
        contender("bare, no isolation, `savefig`", lambda: bare),
        contender("POST /v1/exec with `plt.show()`, GET the PNG", lambda: with_picture),
    ]
    return fresh.measure("(i) The plot of (b) over HTTP", contenders, max(2, bench.rounds // 4))

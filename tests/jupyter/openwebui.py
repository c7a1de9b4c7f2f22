#!/usr/bin/env python3
"""Open WebUI's own Jupyter client, unmodified, against a server.

    FOLDER/venv/bin/python openwebui.py URL TOKEN [--password PW] [--wall SECONDS] [--reference] [--only WORDS]

FOLDER is what install.sh made. `--wall` is the server's own limit for the time of one run; 10 is a good value, less than 8
is not enough for the other checks. Needs pandas and matplotlib in the kernel.
"""

import asyncio
import base64
import importlib
import logging
import statistics
import struct
import sys
import time
import types
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from checks import Skip, Suite, arguments, expect, main, short

options = arguments(
    "Open WebUI's own Jupyter client against a server",
    ("--password", {"help": "the password of the server's login page"}),
    ("--wall", {"type": float, "help": "the server's own limit for the time of one run, in seconds"}),
)
suite = Suite(options)
check = suite.check
URL = options.url.rstrip("/")
PNG = "data:image/png;base64,"


def client():
    """The client's module. Of its package only what this one file needs is there, so the package's own start is left out."""
    wheel = Path(sys.prefix).parent / "open-webui" / "open_webui"
    if not wheel.is_dir():
        sys.exit(f"openwebui.py: {wheel} is missing; run install.sh FOLDER, then this with FOLDER/venv/bin/python")
    package = types.ModuleType("open_webui")
    package.__path__ = [str(wheel)]
    environment = types.ModuleType("open_webui.env")
    environment.AIOHTTP_CLIENT_ALLOW_REDIRECTS = False
    environment.ENABLE_ORJSON = False
    sys.modules["open_webui"] = package
    sys.modules["open_webui.env"] = environment
    logging.disable(logging.CRITICAL)
    return importlib.import_module("open_webui.utils.code_interpreter")


interpreter = client()


class Ran:
    """What Open WebUI got from one run."""

    def __init__(self, result, seconds):
        self.stdout, self.stderr, self.result = result["stdout"], result["stderr"], result["result"]
        self.seconds = seconds

    def __repr__(self):
        parts = (f"{name}={short(getattr(self, name), 200)!r}" for name in ("stdout", "stderr", "result"))
        return f"[{', '.join(parts)}, {self.seconds:.1f} s]"

    def connected(self):
        """The client puts whatever it fails with itself into stderr, as `Error: …`, and loses all that came before."""
        expect(not self.stderr.startswith("Error:"), "the client failed:", self)
        expect("Execution timed out" not in self.stderr, "the client gave up:", self)
        return self


async def run(code, timeout=30, url=URL, token=options.token, password=""):
    began = time.monotonic()
    result = await interpreter.execute_code_jupyter(url, code, token, password, timeout)
    return Ran(result, time.monotonic() - began)


def images(ran):
    """The PNGs of a result, as (width, height)."""
    sizes = []
    for line in ran.result.split("\n"):
        if line.startswith(PNG):
            data = base64.b64decode(line[len(PNG) :], validate=True)
            expect(data[:8] == b"\x89PNG\r\n\x1a\n", "not a PNG:", data[:20])
            expect(data[-8:-4] == b"IEND", "the PNG is cut")
            sizes.append(struct.unpack(">II", data[16:24]))
    return sizes


async def kernels():
    """The ids of the kernels that there are now."""
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{URL}/api/kernels", params={"token": options.token}) as response:
            response.raise_for_status()
            return {kernel["id"] for kernel in await response.json()}


BEFORE = asyncio.run(kernels())


@check("print, at a URL with a prefix")
async def _():
    expect(urlsplit(URL).path not in ("", "/"), "this suite wants a URL with a prefix, e.g. …/jupyter")
    ran = (await run("print(6 * 7)")).connected()
    expect((ran.stdout, ran.stderr, ran.result) == ("42", "", ""), ran)


@check("a URL with and without a slash at its end")
async def _():
    for url in (URL, URL + "/"):
        ran = (await run("print('there')", url=url)).connected()
        expect(ran.stdout == "there", url, ran)


@check("stderr")
async def _():
    ran = (await run("import sys\nprint('out')\nprint('err', file=sys.stderr)")).connected()
    expect((ran.stdout, ran.stderr, ran.result) == ("out", "err", ""), ran)


@check("the traceback of an error is in stderr, what was printed before it is kept")
async def _():
    ran = (await run("print('first')\ndef divide(n):\n    return n / 0\ndivide(7)\nprint('never')")).connected()
    expect(ran.stdout == "first", ran)
    for part in ("Traceback", "ZeroDivisionError", "division by zero", "divide"):
        expect(part in ran.stderr, f"no {part} in the traceback:", ran)


@check("an error of syntax")
async def _():
    ran = (await run("print('never')\nfor in range(3)")).connected()
    expect(ran.stdout == "" and "SyntaxError" in ran.stderr, ran)


@check("the last value")
async def _():
    ran = (await run("x = [1, 'two']\nx * 2")).connected()
    expect((ran.stdout, ran.stderr, ran.result) == ("", "", "[1, 'two', 1, 'two']"), ran)
    ran = (await run("x = 3\nNone")).connected()
    expect((ran.stdout, ran.stderr, ran.result) == ("", "", ""), ran)


@check("a value of pandas")
async def _():
    ran = (await run("import pandas\npandas.DataFrame({'fruit': ['apple', 'pear'], 'count': [3, 5]})", 60)).connected()
    lines = ran.result.split("\n")
    expect(len(lines) == 3 and lines[0].split() == ["fruit", "count"] and lines[2].split() == ["1", "pear", "5"], ran)


@check("a figure of matplotlib")
async def _():
    code = "import matplotlib.pyplot as plt\nprint('drawn')\nplt.plot([1, 4, 9])\nplt.show()"
    ran = (await run(code, 60)).connected()
    sizes = images(ran)
    expect(ran.stdout == "drawn" and len(sizes) == 1 and min(sizes[0]) > 100, sizes, ran)


@check("two figures")
async def _():
    code = "import matplotlib.pyplot as plt\nfor n in (1, 2):\n    plt.figure()\n    plt.plot([n, 4, 9])\n    plt.show()"
    ran = (await run(code, 60)).connected()
    expect(len(images(ran)) == 2, ran)


NOISE = """
import numpy, matplotlib.pyplot as plt
print("before the figure")
figure = plt.figure(figsize=({inches}, {inches}), dpi=150)
axes = figure.add_axes([0, 0, 1, 1])
axes.set_axis_off()
pixels = numpy.random.default_rng(1).integers(0, 256, ({pixels}, {pixels}, 3), dtype=numpy.uint8)
axes.imshow(pixels, interpolation="nearest", aspect="auto")
plt.show()
print("after the figure")
"""


@check("a figure whose PNG is over 1 MiB", original="close 1009, all output lost")
async def _():
    ran = (await run(NOISE.format(inches=12, pixels=1800), 60)).connected()
    sizes = images(ran)
    expect(len(sizes) == 1 and min(sizes[0]) >= 200, "no image:", sizes, ran)
    expect(ran.stdout.split("\n") == ["before the figure", "after the figure"], ran)
    suite.note(f"1800 × 1800 random pixels came as {sizes[0][0]} × {sizes[0][1]}, {len(ran.result)} characters of base64")


@check("a figure whose PNG is under 1 MiB, its base64 over", original="close 1009, all output lost")
async def _():
    ran = (await run(NOISE.format(inches=3.6, pixels=540), 60)).connected()
    sizes = images(ran)
    expect(len(sizes) == 1 and min(sizes[0]) >= 200, "no image:", sizes, ran)
    expect("before the figure" in ran.stdout and "after the figure" in ran.stdout, ran)


@check("3 MB printed at once", original="close 1009, all output lost")
async def _():
    ran = (await run("print('first')\nprint('x' * 3_000_000)\nprint('last')")).connected()
    came = ran.stdout.count("x")
    expect(ran.stdout.startswith("first\nxxxx"), ran)
    # Whole, or as much as the server's own limit for output keeps: then it must be said.
    expect(came == 3_000_000 or came >= 500_000, f"only {came} of 3,000,000 characters came:", ran)
    suite.note(f"{came} of 3,000,000 characters came")


@check("3 MB printed in pieces", original="ipykernel joins them to one message: close 1009")
async def _():
    ran = (await run("for n in range(300):\n    print('x' * 9_999)")).connected()
    came = ran.stdout.count("x")
    expect(came == 2_999_700 or came >= 500_000, f"only {came} of 2,999,700 characters came:", ran)
    suite.note(f"{came} of 2,999,700 characters came")


@check("many small prints")
async def _():
    ran = (await run("for n in range(20_000):\n    print(n)")).connected()
    expect(ran.stdout == "\n".join(map(str, range(20_000))), ran)
    code = "import sys, time\nfor n in range(300):\n    print(n, flush=True)\n    time.sleep(0.003)"
    ran = (await run(code)).connected()
    expect(ran.stdout == "\n".join(map(str, range(300))), ran)


@check("characters that JSON writes with six bytes", original="close 1009, all output lost")
async def _():
    ran = (await run("print('\\x01' * 400_000)")).connected()
    expect(ran.stdout == "\x01" * 400_000, ran)


@check("characters of four bytes", original="ipykernel writes them as two escapes: over 1 MiB")
async def _():
    ran = (await run("print('\\N{SNOWMAN}\\N{GRINNING FACE}' * 100_000)")).connected()
    expect(ran.stdout == "☃😀" * 100_000, ran)


@check("any characters")
async def _():
    text = "äöü ÿ\x00\x07\x1b[31mred\x1b[0m\x7f\x85\u2028 漢字 👩‍👩‍👧 \ufeff\uffff \"quoted\" \\n </script> |"
    ran = (await run(f"print({text!r})")).connected()
    expect(ran.stdout == text, repr(ran.stdout))


@check("bytes that are no text, and the output of a child process")
async def _():
    code = (
        "import os, subprocess, sys\nsys.stdout.flush()\nos.write(1, b'raw \\xff\\xfe bytes\\n')\n"
        "subprocess.run(['echo', 'from a child'])"
    )
    ran = (await run(code)).connected()
    expect("from a child" in ran.stdout and "raw " in ran.stdout and " bytes" in ran.stdout, ran)


@check("a last value over 1 MiB", original="close 1009, all output lost")
async def _():
    ran = (await run("print('kept')\n'y' * 2_000_000")).connected()
    expect(ran.stdout.startswith("kept"), ran)
    expect(ran.result.startswith("'yyyy") or "limit" in ran.stderr + ran.result, ran)
    suite.note(f"{ran.result.count('y')} of 2,000,000 characters came")


@check("an error whose text is over 1 MiB", original="close 1009, all output lost")
async def _():
    ran = (await run("print('kept')\nraise ValueError('z' * 2_000_000)")).connected()
    expect(ran.stdout.startswith("kept") and "ValueError" in ran.stderr, ran)


@check("a program over 1 MiB", original="it is sent back as execute_input: close 1009")
async def _():
    ran = (await run(f"# {'w' * 1_200_000}\nprint('ran')")).connected()
    expect(ran.stdout == "ran", ran)


@check("input() is refused at once")
async def _():
    ran = (await run("print('asks')\nname = input('your name? ')\nprint('never', name)", 20)).connected()
    expect(ran.seconds < 10 and "never" not in ran.stdout and "asks" in ran.stdout, ran)
    expect("Error" in ran.stderr, "no error is told:", ran)


@check("a run that is longer than the client's timeout", original="the client gives up")
async def _():
    ran = (await run("import time\nprint('sleeps', flush=True)\ntime.sleep(6)\nprint('awake')", 3)).connected()
    expect(ran.stdout == "sleeps\nawake" and ran.stderr == "", ran)


@check("an endless run is ended by the server's own limit", original="it has none, the client gives up")
async def _():
    if options.wall is None:
        raise Skip("give --wall")
    ran = (await run("print('started', flush=True)\nwhile True:\n    pass", 3)).connected()
    expect("started" in ran.stdout, ran)
    expect(ran.stderr.strip() != "", "nothing tells why it ended:", ran)
    expect(any(word in ran.stderr.lower() for word in ("time", "limit", "second")), "the message does not say why:", ran)
    expect(options.wall - 2 < ran.seconds < options.wall + 8, ran)
    suite.note(f"after {ran.seconds:.1f} s: {short(ran.stderr, 200)!r}")


@check("sys.exit")
async def _():
    for code in ("sys.exit()", "sys.exit(3)", "exit()"):
        ran = (await run(f"import sys\nprint('before')\n{code}", 20)).connected()
        expect(ran.stdout == "before" and ran.seconds < 10, code, ran)


@check("os._exit is told at once", original="the client waits until its timeout")
async def _():
    ran = await run("import os\nprint('before', flush=True)\nos._exit(3)", 8)
    ran.connected()
    expect(ran.stderr.strip() != "" and ran.seconds < 6, ran)
    expect("before" in ran.stdout, "what was printed is lost:", ran)


@check("a segmentation fault is told at once", original="the client waits until its timeout")
async def _():
    ran = await run("import ctypes\nprint('before', flush=True)\nctypes.string_at(0)", 8)
    ran.connected()
    expect(ran.stderr.strip() != "" and ran.seconds < 6, ran)
    expect("before" in ran.stdout, "what was printed is lost:", ran)


@check("two runs at once")
async def _():
    def code(name):
        return f"import time\nname = {name!r}\ntime.sleep(3)\nprint(name)"

    began = time.monotonic()
    one, two = await asyncio.gather(run(code("one")), run(code("two")))
    took = time.monotonic() - began
    expect((one.connected().stdout, two.connected().stdout) == ("one", "two"), one, two)
    expect(took < 5.8, f"one waited for the other: {took:.1f} s")


@check("ten runs at once")
async def _():
    every = await asyncio.gather(*(run(f"print({n} ** 2)", 60) for n in range(10)))
    expect([ran.connected().stdout for ran in every] == [str(n**2) for n in range(10)], every)


@check("no state between runs")
async def _():
    (await run("kept = 1\nimport builtins\nbuiltins.kept_too = 2")).connected()
    ran = (await run("print('kept' in globals())\nimport builtins\nprint(hasattr(builtins, 'kept_too'))")).connected()
    expect(ran.stdout == "False\nFalse", ran)


@check("no kernel is left behind")
async def _():
    left = await kernels() - BEFORE
    expect(not left, left)


@check("a wrong token is refused with a clear error")
async def _():
    ran = await run("print('never')", token="wrong-token")
    expect(ran.stdout == "" and ran.seconds < 5, ran)
    expect("401" in ran.stderr or "403" in ran.stderr, ran)
    ran = await run("print('never')", token="")
    expect(ran.stdout == "" and ("401" in ran.stderr or "403" in ran.stderr), "without any token:", ran)


def needs_password():
    if options.password is None:
        raise Skip("give --password")


def at_host(name):
    parts = urlsplit(URL)
    return urlunsplit(parts._replace(netloc=f"{name}:{parts.port}" if parts.port else name))


@check("the password, at a URL with an IP address", original="its cookies are for its prefix only")
async def _():
    needs_password()
    ran = (await run("print('in')\n5", url=at_host("127.0.0.1"), token="", password=options.password)).connected()
    expect((ran.stdout, ran.result) == ("in", "5"), ran)


@check("the password, at a URL with a name")
async def _():
    needs_password()
    for slash in ("", "/"):
        ran = await run("print('in')", url=at_host("localhost") + slash, token="", password=options.password)
        expect(ran.connected().stdout == "in", ran)


@check("a wrong password is refused with a clear error")
async def _():
    needs_password()
    ran = await run("print('never')", url=at_host("localhost"), token="", password="wrong-password")
    expect(ran.stdout == "" and ran.seconds < 10, ran)
    expect("401" in ran.stderr or "403" in ran.stderr, ran)


@check("another site cannot use a browser that is logged in")
async def _():
    needs_password()
    base = at_host("localhost")
    form = {"_xsrf": "", "password": options.password}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{base}/login", data=form, allow_redirects=False) as response:
            expect(response.status in (400, 401, 403), "a login without the token of the form:", response.status)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{base}/login") as response:
            token = response.cookies["_xsrf"].value
        form["_xsrf"] = token
        headers = {"X-XSRFToken": token}
        async with session.post(f"{base}/login", data=form, headers=headers, allow_redirects=False) as response:
            expect(response.status < 400, "the login itself:", response.status)
        async with session.get(f"{base}/api/kernels") as response:
            expect(response.status == 200, "logged in, but:", response.status)
        async with session.post(f"{base}/api/kernels") as response:
            expect(response.status == 403, "a kernel started with the cookie alone:", response.status)
        async with session.post(f"{base}/api/kernels", headers=headers) as response:
            expect(response.status < 300, "a kernel, with the token:", response.status)
            kernel = (await response.json())["id"]
        try:
            address = f"{base}/api/kernels/{kernel}/channels"
            try:
                socket = await session.ws_connect(address, headers={"Origin": "http://elsewhere.example"})
                await socket.close()
                expect(False, "a WebSocket from another origin was accepted")
            except aiohttp.WSServerHandshakeError as error:
                expect(error.status in (400, 401, 403), "another origin:", error.status)
        finally:
            async with session.delete(f"{base}/api/kernels/{kernel}", headers=headers) as response:
                expect(response.status < 300, "the deletion:", response.status)


@check("the time of one run")
async def _():
    (await run("print(1)")).connected()
    times = [(await run("print(1)")).connected().seconds * 1000 for _ in range(10)]
    suite.note(f"print(1): median {statistics.median(times):.1f} ms, least {min(times):.1f} ms, most {max(times):.1f} ms")


main(suite)

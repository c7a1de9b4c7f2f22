#!/usr/bin/env python3
"""A real `jupyter server` that uses a server as its gateway, and a front end that uses it as a notebook would.

    FOLDER/venv/bin/python gateway.py URL TOKEN [--token-b TOKEN] [--reference] [--only WORDS]

FOLDER is what install.sh made. `--token-b` is the key of somebody else, who must not see the first one's kernels. The
jupyter server listens on a free loopback port with files of its own, and is ended by its pid.
"""

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from datetime import datetime, timezone

import aiohttp

from checks import Skip, Suite, arguments, expect, short

options = arguments(
    "a real jupyter server that uses a server as its gateway",
    ("--token-b", {"help": "the key of somebody else"}),
)
suite = Suite(options)
check = suite.check
URL = options.url.rstrip("/")
V1 = "v1.kernel.websocket.jupyter.org"
EXECUTE = {"silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}


class Gateway:
    """The jupyter server."""

    def __init__(self, token=options.token):
        self.home = tempfile.TemporaryDirectory(prefix="jupyter-gateway-")
        self.log = open(os.path.join(self.home.name, "log"), "w+")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}/"
        self.token = secrets.token_hex(16)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "KERNEL_"))}
        for name in ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
            environment[name] = os.path.join(self.home.name, name.lower())
        files = os.path.join(self.home.name, "files")
        os.mkdir(files)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
                *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"),
                *(f"--ServerApp.root_dir={files}", f"--IdentityProvider.token={self.token}"),
                *(f"--gateway-url={URL}", f"--GatewayClient.auth_token={token}"),
            ],
            env=environment | {"JUPYTER_NO_CONFIG": "1"},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    async def ready(self):
        """Waits until it answers."""
        deadline = time.monotonic() + 60
        async with aiohttp.ClientSession() as session:
            while time.monotonic() < deadline and self.process.poll() is None:
                try:
                    async with session.get(self.address + "api"):
                        return
                except aiohttp.ClientError:
                    await asyncio.sleep(0.1)
        raise SystemExit(f"gateway.py: the jupyter server did not start:\n{self.said()}")

    def said(self, most=3000):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()[-most:]

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        self.home.cleanup()


gateway = Gateway()


class Front:
    """What a notebook front end does, over HTTP."""

    def __init__(self, base=None, authorization=None):
        self.base = base or gateway.address
        self.authorization = authorization or f"token {gateway.token}"

    async def __aenter__(self):
        headers = {"Authorization": self.authorization}
        self.session = aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=60))
        return self

    async def __aexit__(self, *_):
        await self.session.close()

    async def call(self, method, path, body=None, status=None):
        async with self.session.request(method, f"{self.base.rstrip('/')}/{path}", json=body) as response:
            text = (await response.read()).decode("utf-8", "replace")
            if status is not None:
                allowed = status if isinstance(status, tuple) else (status,)
                expect(response.status in allowed, f"{method} {path}: {response.status} {short(text)}")
        try:
            return json.loads(text)
        except ValueError:
            return text

    async def start(self):
        return (await self.call("POST", "api/kernels", {"name": "python3"}, 201))["id"]

    async def delete(self, kernel):
        await self.call("DELETE", f"api/kernels/{kernel}", status=204)

    def channels(self, kernel, protocols=()):
        return Channels(self, kernel, protocols)


class Channels:
    """The front end's WebSocket to a kernel."""

    def __init__(self, front, kernel, protocols):
        self.front, self.kernel, self.protocols = front, kernel, protocols
        self.session = uuid.uuid4().hex
        self.other = []

    async def __aenter__(self):
        self.socket = await self.front.session.ws_connect(
            f"{self.front.base.rstrip('/')}/api/kernels/{self.kernel}/channels?session_id={self.session}",
            protocols=self.protocols,
            max_msg_size=0,
        )
        return self

    async def __aexit__(self, *_):
        await self.socket.close()

    async def send(self, kind, content, channel="shell"):
        """Sends a request as JupyterLab writes it; gives its id."""
        name = uuid.uuid4().hex
        date = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        header = {"msg_id": name, "msg_type": kind, "username": "", "session": self.session, "date": date, "version": "5.4"}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "buffers": [], "channel": channel}
        await self.socket.send_str(json.dumps(message))
        return name

    async def message(self, timeout):
        frame = await self.socket.receive(timeout)
        expect(frame.type == aiohttp.WSMsgType.TEXT, "no text frame came:", frame)
        message = json.loads(frame.data)
        for key in ("header", "msg_id", "msg_type", "parent_header", "metadata", "content", "channel"):
            expect(key in message, f"a message without {key}:", message)
        expect(message["header"]["msg_type"] == message["msg_type"], message)
        return message

    async def collect(self, name, channel="shell", reply=True, timeout=30):
        """All messages of a request until it is done: (reply, the messages on iopub)."""
        answer, published, idle = None, [], False
        deadline = time.monotonic() + timeout
        while not idle or (reply and answer is None):
            try:
                message = await self.message(max(0.1, deadline - time.monotonic()))
            except (TimeoutError, asyncio.TimeoutError):
                kinds = [(one["msg_type"], one["content"].get("execution_state")) for one in published]
                raise AssertionError(f"it did not end: reply {answer}, iopub {kinds}") from None
            if message["parent_header"].get("msg_id") != name:
                self.other.append(message)
            elif message["channel"] == channel:
                expect(answer is None, "two replies:", answer, message)
                answer = message
            else:
                expect(message["channel"] == "iopub", message)
                published.append(message)
                idle = message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
        states = [one["content"]["execution_state"] for one in published if one["msg_type"] == "status"]
        expect(states[0] == "busy" and states[-1] == "idle", states)
        return answer, [one for one in published if one["msg_type"] != "status"]

    async def ask(self, kind, content, channel="shell", timeout=30):
        """The content of the reply to a request, which must be of the right type."""
        reply, _ = await self.collect(await self.send(kind, content, channel), channel, timeout=timeout)
        expect(reply["msg_type"] == kind.replace("_request", "_reply"), reply)
        return reply["content"]

    async def execute(self, code, timeout=30, **more):
        reply, published = await self.collect(await self.send("execute_request", EXECUTE | {"code": code} | more), timeout=timeout)
        expect(reply["msg_type"] == "execute_reply", reply)
        return reply["content"], published


def stream(published, name="stdout"):
    every = (one["content"] for one in published if one["msg_type"] == "stream")
    return "".join(content["text"] for content in every if content["name"] == name)


def kernel_check(name, protocols=(), original=None):
    """A check that gets a front end with a kernel and an open connection to it."""

    def register(function):
        async def with_kernel():
            async with Front() as front:
                kernel = await front.start()
                try:
                    async with front.channels(kernel, protocols) as channels:
                        await function(front, kernel, channels)
                finally:
                    await front.call("DELETE", f"api/kernels/{kernel}")

        return check(name, original)(with_kernel)

    return register


@check("kernelspecs")
async def _():
    async with Front() as front:
        specs = await front.call("GET", "api/kernelspecs", status=200)
        expect(specs["default"] in specs["kernelspecs"], specs)
        for name, model in specs["kernelspecs"].items():
            spec = model["spec"]
            expect(model["name"] == name and isinstance(model["resources"], dict), model)
            expect(isinstance(spec["argv"], list) and spec["display_name"] and spec["language"], spec)
            one = await front.call("GET", f"api/kernelspecs/{name}", status=200)
            expect(one["spec"] == spec, one)
            for path in model["resources"].values():
                await front.call("GET", path.lstrip("/"), status=200)
        await front.call("GET", "api/kernelspecs/nonesuch", status=404)


@check("start, list and delete a kernel")
async def _():
    async with Front() as front:
        model = await front.call("POST", "api/kernels", {"name": "python3"}, 201)
        name = model["id"]
        expect(set(model) >= {"id", "name", "last_activity", "execution_state", "connections"}, model)
        datetime.strptime(model["last_activity"], "%Y-%m-%dT%H:%M:%S.%fZ")
        expect(name in [one["id"] for one in await front.call("GET", "api/kernels", status=200)])
        expect((await front.call("GET", f"api/kernels/{name}", status=200))["id"] == name)
        await front.delete(name)
        expect(name not in [one["id"] for one in await front.call("GET", "api/kernels", status=200)])
        await front.call("GET", f"api/kernels/{name}", status=404)


@check("a kernel of a kind that there is not is refused")
async def _():
    async with Front() as front:
        answer = await front.call("POST", "api/kernels", {"name": "nonesuch"})
        expect("id" not in answer, answer)


@check("a kernel that the gateway ended is noticed")
async def _():
    async with Front() as front, Front(URL, f"token {options.token}") as direct:
        name = await front.start()
        await direct.call("DELETE", f"api/kernels/{name}", status=204)
        expect(name not in [one["id"] for one in await front.call("GET", "api/kernels", status=200)])


@check("a notebook's session")
async def _():
    async with Front() as front:
        body = {"path": "one.ipynb", "name": "one", "type": "notebook", "kernel": {"name": "python3"}}
        session = await front.call("POST", "api/sessions", body, 201)
        kernel = session["kernel"]["id"]
        async with front.channels(kernel) as channels:
            _, published = await channels.execute("print('in a session')")
            expect(stream(published) == "in a session\n", published)
        every = await front.call("GET", "api/sessions", status=200)
        expect([one["id"] for one in every] == [session["id"]], every)
        await front.call("DELETE", f"api/sessions/{session['id']}", status=204)
        expect(kernel not in [one["id"] for one in await front.call("GET", "api/kernels", status=200)])


async def first_steps(channels):
    """What JupyterLab does first, and a cell."""
    info = await channels.ask("kernel_info_request", {})
    expect(info["status"] == "ok" and info["language_info"]["name"] == "python", info)
    for key in ("protocol_version", "implementation", "implementation_version", "banner"):
        expect(isinstance(info[key], str), key, info)
    for key in ("version", "mimetype", "file_extension"):
        expect(isinstance(info["language_info"][key], str), key, info)
    comms = await channels.ask("comm_info_request", {"target_name": "jupyter.widget"})
    expect(comms["status"] == "ok" and comms["comms"] == {}, comms)
    reply, published = await channels.execute("value = 20\nprint('ä☃')\nvalue + 1")
    expect(reply["status"] == "ok" and reply["execution_count"] == 1, reply)
    expect(reply.get("user_expressions") == {} and reply.get("payload", []) == [], reply)
    kinds = [one["msg_type"] for one in published]
    expect(kinds == ["execute_input", "stream", "execute_result"], kinds)
    expect(published[0]["content"] == {"code": "value = 20\nprint('ä☃')\nvalue + 1", "execution_count": 1}, published[0])
    expect(published[1]["content"] == {"name": "stdout", "text": "ä☃\n"}, published[1])
    result = published[2]["content"]
    expect(result["data"]["text/plain"] == "21" and result["execution_count"] == 1 and result["metadata"] == {}, result)


@kernel_check("the first steps of a notebook")
async def _(front, kernel, channels):
    await first_steps(channels)


@kernel_check("the first steps of a notebook that offers the newer framing", protocols=(V1,))
async def _(front, kernel, channels):
    # A gateway's client takes the old one whatever is offered, and the front end must then use it too.
    expect(channels.socket.protocol is None, channels.socket.protocol)
    await first_steps(channels)


@kernel_check("an error")
async def _(front, kernel, channels):
    reply, published = await channels.execute("1 / 0")
    expect(reply["status"] == "error" and reply["ename"] == "ZeroDivisionError", reply)
    expect(reply["execution_count"] == 1 and isinstance(reply["traceback"], list), reply)
    error = published[-1]
    expect(error["msg_type"] == "error" and error["content"]["evalue"] == "division by zero", error)


@kernel_check("something shown")
async def _(front, kernel, channels):
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()"
    reply, published = await channels.execute(code, 60)
    shown = [one["content"] for one in published if one["msg_type"] == "display_data"]
    expect(reply["status"] == "ok" and len(shown) == 1 and "image/png" in shown[0]["data"], published)
    expect(isinstance(shown[0]["metadata"], dict) and isinstance(shown[0].get("transient", {}), dict), shown)


@kernel_check("complete, inspect, is_complete and history are answered")
async def _(front, kernel, channels):
    await channels.execute("remembered_name = 1")
    content = await channels.ask("complete_request", {"code": "remembered_na", "cursor_pos": 13})
    expect(content["status"] == "ok" and isinstance(content["matches"], list), content)
    expect(0 <= content["cursor_start"] <= content["cursor_end"] <= 13 and isinstance(content["metadata"], dict), content)
    suite.note(f"complete: {content['matches'][:3]}")
    content = await channels.ask("complete_request", {"code": "☃ = '😀'; remembered_na", "cursor_pos": 22})
    expect(content["status"] == "ok" and content["cursor_end"] <= 22, content)
    content = await channels.ask("inspect_request", {"code": "print", "cursor_pos": 5, "detail_level": 0})
    expect(content["status"] == "ok" and isinstance(content["found"], bool) and isinstance(content["data"], dict), content)
    suite.note(f"inspect: found {content['found']}")
    content = await channels.ask("inspect_request", {"code": "nonesuch_", "cursor_pos": 9, "detail_level": 0})
    expect(content["status"] == "ok" and content["found"] is False and content["data"] == {}, content)
    for code, good in (("x = 1", "complete"), ("for i in range(3):", "incomplete"), ("x = )", "invalid")):
        content = await channels.ask("is_complete_request", {"code": code})
        expect(content["status"] in (good, "unknown"), code, content)
    suite.note(f"is_complete: {'not known' if content['status'] == 'unknown' else 'known'}")
    asked = {"output": False, "raw": True, "hist_access_type": "tail", "n": 500}
    content = await channels.ask("history_request", asked)
    expect(content["status"] == "ok" and isinstance(content["history"], list), content)
    content = await channels.ask("comm_info_request", {})
    expect(content["status"] == "ok" and content["comms"] == {}, content)


@kernel_check("messages that have no answer do no harm")
async def _(front, kernel, channels):
    for kind, content in (
        ("nonesuch_request", {}),
        ("comm_open", {"comm_id": "c1", "target_name": "nonesuch", "data": {}}),
        ("comm_msg", {"comm_id": "c1", "data": {}}),
        ("comm_close", {"comm_id": "c1", "data": {}}),
    ):
        await channels.send(kind, content)
    await channels.send("input_reply", {"value": "unasked"}, "stdin")
    await channels.send("nonesuch_request", {}, "control")
    reply, published = await channels.execute("print('alive')")
    expect(reply["status"] == "ok" and stream(published) == "alive\n", published)


@kernel_check("an execute with only its code, an empty one, and a silent one")
async def _(front, kernel, channels):
    reply, published = await channels.collect(await channels.send("execute_request", {"code": "print(1)"}))
    expect(reply["content"]["status"] == "ok" and stream(published) == "1\n", reply)
    reply, _ = await channels.execute("")
    expect(reply["status"] == "ok", reply)
    reply, published = await channels.execute("5", silent=True)
    expect(reply["status"] == "ok" and not published, published)


@kernel_check("output comes while a cell runs")
async def _(front, kernel, channels):
    name = await channels.send("execute_request", EXECUTE | {"code": "import time\nprint('early')\ntime.sleep(3)\nprint('late')"})
    began = time.monotonic()
    while True:
        message = await channels.message(10)
        if message["msg_type"] == "stream" and message["parent_header"].get("msg_id") == name:
            break
    expect(message["content"]["text"] == "early\n" and time.monotonic() - began < 2.5, message["content"])


@kernel_check("many megabytes, in many messages")
async def _(front, kernel, channels):
    reply, published = await channels.execute("for n in range(300):\n    print('x' * 9_999)", 60)
    came = stream(published).count("x")
    expect(reply["status"] == "ok" and came >= 500_000, came)
    suite.note(f"{came} of 2,999,700 characters came in {len(published)} messages")


@kernel_check("two front ends of one kernel")
async def _(front, kernel, channels):
    async with front.channels(kernel) as second:
        await second.ask("kernel_info_request", {})
        name = await channels.send("execute_request", EXECUTE | {"code": "shared = 1\nprint('seen by both')"})
        reply, published = await channels.collect(name)
        expect(reply["content"]["status"] == "ok" and stream(published) == "seen by both\n", published)
        _, seen = await second.collect(name, reply=False)
        expect(stream(seen) == "seen by both\n", seen)
        _, published = await second.execute("print(shared)")
        expect(stream(published) == "1\n", published)


@kernel_check("interrupt")
async def _(front, kernel, channels):
    await channels.execute("survives = 1")
    name = await channels.send("execute_request", EXECUTE | {"code": "import time\nprint('sleeps')\ntime.sleep(20)"})
    await asyncio.sleep(1)
    began = time.monotonic()
    await front.call("POST", f"api/kernels/{kernel}/interrupt", status=204)
    reply, published = await channels.collect(name, timeout=15)
    expect(time.monotonic() - began < 8 and reply["content"]["ename"] == "KeyboardInterrupt", reply)
    _, published = await channels.execute("print(survives)")
    expect(stream(published) == "1\n", published)


@kernel_check("interrupt by a message")
async def _(front, kernel, channels):
    name = await channels.send("execute_request", EXECUTE | {"code": "import time\ntime.sleep(20)"})
    await asyncio.sleep(1)
    interrupt = await channels.send("interrupt_request", {}, "control")
    replies = {}
    deadline = time.monotonic() + 10
    while not {name, interrupt} <= set(replies):
        message = await channels.message(max(0.1, deadline - time.monotonic()))
        if message["channel"] in ("shell", "control"):
            replies[message["parent_header"]["msg_id"]] = message
    expect(replies[interrupt]["msg_type"] == "interrupt_reply" and replies[interrupt]["content"]["status"] == "ok", replies)
    expect(replies[name]["content"]["ename"] == "KeyboardInterrupt", replies)


@kernel_check("restart")
async def _(front, kernel, channels):
    await channels.execute("lost = 1")
    model = await front.call("POST", f"api/kernels/{kernel}/restart", status=200)
    expect(model["id"] == kernel, model)
    # JupyterLab connects again after a restart; so does this.
    async with front.channels(kernel) as again:
        await again.ask("kernel_info_request", {})
        reply, published = await again.execute("print('lost' in globals())")
        expect(stream(published) == "False\n" and reply["execution_count"] == 1, reply, published)


@kernel_check("restart, with the same connection", original="its connection to iopub is often lost")
async def _(front, kernel, channels):
    await channels.execute("lost = 1")
    await front.call("POST", f"api/kernels/{kernel}/restart", status=200)
    reply, published = await channels.execute("print('lost' in globals())", 10)
    expect(stream(published) == "False\n" and reply["execution_count"] == 1, reply, published)


@kernel_check("a kernel that dies", original="the cell's end is never told")
async def _(front, kernel, channels):
    reply, published = await channels.execute("import os\nprint('before', flush=True)\nos._exit(3)", 8)
    expect(reply["status"] == "error" and stream(published) == "before\n", reply, published)
    expect("error" in [one["msg_type"] for one in published], published)


@kernel_check("a connection that is closed and opened again")
async def _(front, kernel, channels):
    await channels.execute("kept = 1")
    await channels.socket.close()
    async with front.channels(kernel) as again:
        _, published = await again.execute("print(kept)")
        expect(stream(published) == "1\n", published)


@check("somebody else sees and reaches nothing")
async def _():
    if options.token_b is None:
        raise Skip("give --token-b")
    async with Front() as front, Front(URL, f"token {options.token_b}") as stranger:
        kernel = await front.start()
        try:
            seen = await stranger.call("GET", "api/kernels", status=200)
            expect(kernel not in [one["id"] for one in seen], "it is listed:", seen)
            for method, path in (
                ("GET", ""),
                ("POST", "/interrupt"),
                ("POST", "/restart"),
                ("GET", "/channels"),
                ("DELETE", ""),
            ):
                await stranger.call(method, f"api/kernels/{kernel}{path}", status=(403, 404))
            try:
                async with stranger.channels(kernel):
                    expect(False, "the WebSocket was opened")
            except aiohttp.WSServerHandshakeError as error:
                expect(error.status in (403, 404), error)
            # What is there and what is not must look the same.
            nothing = str(uuid.uuid4())
            for name in (kernel, nothing):
                async with stranger.session.get(f"{URL}/api/kernels/{name}") as response:
                    expect(response.status == 404, name, response.status)
            async with front.channels(kernel) as channels:
                _, published = await channels.execute("print('mine')")
                expect(stream(published) == "mine\n", published)
            own = (await stranger.call("POST", "api/kernels", {"name": "python3"}, 201))["id"]
            await stranger.call("DELETE", f"api/kernels/{own}", status=204)
        finally:
            await front.call("DELETE", f"api/kernels/{kernel}")


@check("all three ways to give the token")
async def _():
    for authorization in (f"token {options.token}", f"Bearer {options.token}", f"bearer {options.token}"):
        async with Front(URL, authorization) as direct:
            await direct.call("GET", "api/kernels", status=200)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{URL}/api/kernels?token={options.token}") as response:
            expect(response.status == 200, response.status)
        for headers in ({}, {"Authorization": "token "}, {"Authorization": "Basic eDp5"}, {"Authorization": "token wrong"}):
            async with session.get(f"{URL}/api/kernels", headers=headers) as response:
                expect(response.status in (401, 403), headers, response.status)


@check("the jupyter server has not stumbled")
async def _():
    signs = ("Traceback", "Exception reading message", "Exception writing message")
    bad = [line for line in gateway.said(1_000_000).split("\n") if any(sign in line for sign in signs)]
    expect(not bad, "\n".join(bad))


try:
    began = time.monotonic()
    asyncio.run(gateway.ready())
    suite.note(f"the jupyter server started in {time.monotonic() - began:.1f} s")
    code = suite.run()
    if code:
        print(f"the jupyter server said:\n{gateway.said()}", file=sys.stderr)
finally:
    gateway.end()
raise SystemExit(code)

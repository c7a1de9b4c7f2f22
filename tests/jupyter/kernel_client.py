#!/usr/bin/env python3
"""jupyter_kernel_client against a server: kernels that keep their state.

    FOLDER/venv/bin/python kernel_client.py URL TOKEN [--reference] [--only WORDS]

FOLDER is what install.sh made. The client is unmodified, but for one check: its own reading of the framing
v1.kernel.websocket.jupyter.org is broken in 1.0.2 (a KeyError for every message, with any server), so that check mends it.
"""

import base64
import logging
import os
import sys
import threading
import time
from functools import partial

import requests
import websocket
from jupyter_kernel_client import JupyterKernelClient, JupyterSubprotocol, KernelWebSocketClient
from jupyter_kernel_client.client import output_hook
from jupyter_kernel_client.utils import deserialize_msg_from_ws_v1

from checks import Skip, Suite, arguments, expect

options = arguments("jupyter_kernel_client against a server")
suite = Suite(options)
check = suite.check
URL = options.url.rstrip("/")
logging.disable(logging.CRITICAL)
# A PNG of one red pixel.
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAA"
    "AADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)


def connect(kernel_id=None, token=options.token, **kwargs):
    return JupyterKernelClient(server_url=URL, token=token, username="tester", kernel_id=kernel_id, client_kwargs=kwargs)


def end(kernel, shutdown=True):
    """Stops a client. Its own end is a race: websocket-client closes the socket that another thread of it waits on, which
    then wakes after 10 s. Here it is not waited for that long."""
    if kernel.has_kernel:
        kernel._manager.client.timeout = 1
        kernel.stop(shutdown_kernel=shutdown)


class Shared:
    """The kernel that most checks use; started by the first that needs it."""

    kernel = None

    def __call__(self):
        if self.kernel is None or not self.kernel.is_alive():
            self.kernel = connect()
            self.kernel.start()
        return self.kernel


shared = Shared()


def run(code, kernel=None, timeout=20, **kwargs):
    return (kernel or shared()).execute(code, timeout=timeout, **kwargs)


def text(reply, name="stdout"):
    streams = (output for output in reply["outputs"] if output["output_type"] == "stream" and output["name"] == name)
    return "".join(output["text"] for output in streams)


def only(reply, kind):
    found = [output for output in reply["outputs"] if output["output_type"] == kind]
    expect(len(found) == 1, f"one {kind} was expected:", reply)
    return found[0]


@check("start and execute")
def _():
    reply = run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n40 + 2")
    expect(reply["status"] == "ok" and reply["execution_count"] == 1, reply)
    expect((text(reply), text(reply, "stderr")) == ("out\n", "err\n"), reply)
    result = only(reply, "execute_result")
    expect(result["data"]["text/plain"] == "42" and result["execution_count"] == 1 and result["metadata"] == {}, result)


@check("variables, functions and imports are kept between executes")
def _():
    run("import math\nkept = [1]\ndef grow():\n    kept.append(math.floor(2.5))\n    return kept")
    first = run("grow()")
    second = run("grow()")
    expect(only(second, "execute_result")["data"]["text/plain"] == "[1, 2, 2]", second)
    expect(second["execution_count"] == first["execution_count"] + 1, first, second)


@check("an error, and the kernel lives on")
def _():
    reply = run("before = 1\nraise KeyError('lost')")
    error = only(reply, "error")
    expect(reply["status"] == "error" and isinstance(reply["execution_count"], int), reply)
    expect((error["ename"], error["evalue"]) == ("KeyError", "'lost'"), error)
    expect("KeyError" in "\n".join(error["traceback"]), error)
    expect(only(run("before"), "execute_result")["data"]["text/plain"] == "1")


@check("outputs of several kinds, in their order")
def _():
    reply = run(
        "class Rich:\n"
        "    def __repr__(self): return 'plain'\n"
        "    def _repr_html_(self): return '<b>html</b>'\n"
        f"    def _repr_png_(self):\n        import base64\n        return base64.b64decode({PIXEL!r})\n"
        "print('first')\nRich()"
    )
    expect([output["output_type"] for output in reply["outputs"]] == ["stream", "execute_result"], reply)
    data = only(reply, "execute_result")["data"]
    expect(data.get("text/plain") == "plain" and data.get("text/html") == "<b>html</b>", data)
    expect(data.get("image/png", "").strip() == PIXEL, data)


def needs(*modules):
    for module in modules:
        reply = run(f"import {module}", silent=True)
        if reply["status"] != "ok":
            raise Skip(f"the kernel has no {module}")


@check("display, with metadata and updates")
def _():
    needs("IPython.display")
    reply = run(
        "from IPython.display import display, HTML\nprint('first')\ndisplay(HTML('<i>x</i>'))\nprint('second')\n"
        "handle = display('old', display_id='there')\nhandle.update('new')"
    )
    kinds = [output["output_type"] for output in reply["outputs"]]
    expect(kinds == ["stream", "display_data", "stream", "display_data"], reply)
    expect(reply["outputs"][1]["data"]["text/html"] == "<i>x</i>", reply)
    expect(reply["outputs"][3]["data"]["text/plain"] == "'new'", reply)


@check("a figure of matplotlib")
def _():
    reply = run("import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()", timeout=60)
    images = [output["data"]["image/png"] for output in reply["outputs"] if "image/png" in output.get("data", {})]
    expect(len(images) == 1 and base64.b64decode(images[0])[:4] == b"\x89PNG", reply)


@check("user expressions")
def _():
    run("number = 5")
    content = shared().execute_interactive(
        "pass", user_expressions={"good": "number + 1", "bad": "nonesuch"}, timeout=20, output_hook=lambda _: None
    )["content"]
    expect(content["status"] == "ok" and content["payload"] == [], content)
    good, bad = content["user_expressions"]["good"], content["user_expressions"]["bad"]
    expect(good["status"] == "ok" and good["data"]["text/plain"] == "6", good)
    expect(bad["status"] == "error" and bad["ename"] == "NameError", bad)


@check("silent: no count, no result, but output")
def _():
    before = run("1")["execution_count"]
    reply = run("print('seen')\n2", silent=True)
    expect(text(reply) == "seen\n" and len(reply["outputs"]) == 1, reply)
    expect(run("3")["execution_count"] == before + 1)


@check("3 MB of output")
def _():
    reply = run("print('x' * 3_000_000)\n7", timeout=30)
    came = text(reply).count("x")
    expect(came >= 500_000 and only(reply, "execute_result")["data"]["text/plain"] == "7", came)
    suite.note(f"{came} of 3,000,000 characters came")


@check("requests wait for each other, in their order")
def _():
    client = shared()._manager.client
    ids = [client.execute(f"import time\ntime.sleep(0.3)\nqueue_{n} = time.monotonic()") for n in range(3)]
    for one in ids:
        expect(client._recv_reply(one, timeout=20)["content"]["status"] == "ok")
    expect(only(run("queue_0 < queue_1 < queue_2"), "execute_result")["data"]["text/plain"] == "True")


@check("what waits behind an error is not run")
def _():
    client = shared()._manager.client
    failing = client.execute("import time\ntime.sleep(1)\n1 / 0")
    waiting = client.execute("should_not = 1")
    expect(client._recv_reply(failing, timeout=20)["content"]["status"] == "error")
    expect(client._recv_reply(waiting, timeout=20)["content"]["status"] == "aborted")
    time.sleep(0.3)
    expect(run("should_not")["status"] == "error")


@check("kernel_info")
def _():
    info = shared().kernel_info
    expect(info["status"] == "ok" and info["protocol_version"].split(".")[0] == "5", info)
    expect(info["implementation"] and info["implementation_version"] and isinstance(info["banner"], str), info)
    language = info["language_info"]
    expect(language["name"] == "python" and language["version"].startswith("3."), language)
    expect(language["mimetype"] == "text/x-python" and language["file_extension"] == ".py", language)
    expect(all("text" in link and "url" in link for link in info.get("help_links", [])), info)


@check("is_alive, state and last activity")
def _():
    kernel = shared()
    run("1")
    expect(kernel.is_alive() and kernel.has_kernel)
    expect(kernel.execution_state == "idle", kernel.execution_state)
    age = time.time() - kernel.last_activity.timestamp()
    expect(-2 < age < 30, f"the last activity was {age} s ago")
    running = threading.Thread(target=run, args=("import time\ntime.sleep(2)",))
    running.start()
    time.sleep(1)
    kernel.is_alive()
    state = kernel.execution_state
    running.join()
    expect(state == "busy", state)


@check("list kernels")
def _():
    kernel = shared()
    run("1")
    found = [model for model in connect().list_kernels() if model["id"] == kernel.id]
    expect(len(found) == 1 and {"id", "name", "last_activity", "execution_state", "connections"} <= set(found[0]), found)
    expect(found[0]["connections"] == 1 and found[0]["name"] == "python3", found)


@check("reconnect to a kernel by its id")
def _():
    first = shared()
    run("shared_value = 'mine'")
    second = connect(first.id)
    second.start()
    expect(only(run("shared_value", second), "execute_result")["data"]["text/plain"] == "'mine'")
    run("from_second = 2", second)
    end(second, shutdown=False)
    expect(first.is_alive(), "the second client's end ended the kernel")
    expect(only(run("from_second"), "execute_result")["data"]["text/plain"] == "2")


@check("a kernel without a connection keeps its state, and what runs in it goes on")
def _():
    first = connect()
    first.start()
    run("value = 1", first)
    first._manager.client.execute("import time\ntime.sleep(1)\nvalue = 2")
    time.sleep(0.3)
    end(first, shutdown=False)
    second = connect(first.id)
    second.start()
    try:
        time.sleep(1.5)
        expect(only(run("value", second), "execute_result")["data"]["text/plain"] == "2")
    finally:
        end(second)


@check("a kernel that is not there")
def _():
    gone = connect("00000000-0000-4000-8000-000000000000")
    expect(not gone.has_kernel, gone._manager.kernel)


@check("interrupt a sleeping cell, variables stay")
def _():
    kernel = shared()
    run("survives = 1")
    timer = threading.Timer(1, kernel.interrupt)
    timer.start()
    began = time.monotonic()
    reply = run("import time\nprint('sleeps', flush=True)\ntime.sleep(20)")
    timer.join()
    expect(time.monotonic() - began < 8, "the interrupt took too long")
    expect(reply["status"] == "error" and only(reply, "error")["ename"] == "KeyboardInterrupt", reply)
    expect(text(reply) == "sleeps\n", reply)
    expect(only(run("survives"), "execute_result")["data"]["text/plain"] == "1")


@check("interrupt a busy cell")
def _():
    kernel = shared()
    timer = threading.Timer(1, kernel.interrupt)
    timer.start()
    reply = run("while True:\n    pass")
    timer.join()
    expect(reply["status"] == "error" and only(reply, "error")["ename"] == "KeyboardInterrupt", reply)


@check("interrupt a kernel that does nothing")
def _():
    run("survives = 1")
    shared().interrupt()
    time.sleep(0.3)
    expect(only(run("survives"), "execute_result")["data"]["text/plain"] == "1")


@check("restart loses the variables, keeps the id and the connection")
def _():
    kernel = shared()
    run("lost = 1")
    before = kernel.id
    kernel.restart()
    reply = run("lost")
    expect(reply["status"] == "error" and only(reply, "error")["ename"] == "NameError", reply)
    expect(reply["execution_count"] == 1, "the count does not start again:", reply)
    expect(kernel.is_alive() and kernel.id == before)


@check("restart while a cell runs", original="the cell's end is never told")
def _():
    kernel = shared()
    timer = threading.Timer(1, kernel.restart)
    timer.start()
    try:
        reply = run("import time\ntime.sleep(20)", timeout=8)
        expect(reply["status"] in ("error", "aborted", "abort"), reply)
    finally:
        timer.join()
        time.sleep(1)
    expect(text(run("print('again')")) == "again\n")


@check("a kernel that dies is told at once, and starts again", original="the cell's end is never told")
def _():
    kernel = shared()
    run("lost = 1")
    try:
        reply = run("import os\nprint('before', flush=True)\nos._exit(3)", timeout=8)
        expect(reply["status"] == "error" and text(reply) == "before\n", reply)
        only(reply, "error")
    finally:
        time.sleep(2)
    # Variables are gone, or as they were before.
    reply = run("lost", kernel)
    expect(reply["status"] == "ok" or only(reply, "error")["ename"] == "NameError", reply)


@check("sys.exit ends the cell")
def _():
    kernel = connect()
    kernel.start()
    try:
        reply = run("import sys\nprint('before')\nsys.exit(3)", kernel, timeout=10)
        expect(text(reply) == "before\n", reply)
    finally:
        end(kernel)


@check("input: answered or refused at once")
def _():
    refused = run("input('name? ')", timeout=10)
    expect(refused["status"] == "error", refused)
    kernel = connect()
    kernel.start()
    try:
        asked = []

        def answer(message):
            asked.append(message["content"])
            kernel._manager.client.input("Ada")

        reply = run("name = input('name? ')\nprint('hello', name)", kernel, timeout=10, allow_stdin=True, stdin_hook=answer)
        if asked:
            expect(asked == [{"prompt": "name? ", "password": False}] and "hello Ada\n" in text(reply), asked, reply)
            suite.note("input() was asked for and answered")
        else:
            expect(reply["status"] == "error", reply)
            suite.note(f"input() is refused: {only(reply, 'error')['evalue']}")
    finally:
        end(kernel)


@check("list_variables (needs IPython.display)")
def _():
    needs("IPython.display")
    kernel = connect()
    kernel.start()
    try:
        run("number = 1.5\ntext = 'x'\nimport math\ndef function(): pass\n_private = 1", kernel)
        found = {one["name"]: one["type"] for one in kernel.list_variables()}
        expect(found == {"number": ["builtins", "float"], "text": ["builtins", "str"]}, found)
    finally:
        end(kernel)


@check("get_variable_mimetypes (needs IPython.display)")
def _():
    needs("IPython.display")
    run("table = [1, 2]")
    data, metadata = shared().get_variable_mimetypes("table")
    expect(data.get("text/plain") == "[1, 2]" and metadata == {}, data, metadata)
    data, _ = shared().get_variable_mimetypes("table", "text/plain")
    expect(data == {"text/plain": "[1, 2]"}, data)


@check("set_variable and get_variable (need jupyter_mimetypes and IPython)")
def _():
    needs("IPython.display", "jupyter_mimetypes")
    shared().set_variable("given", {"a": [1, 2]})
    expect(only(run("given['a']"), "execute_result")["data"]["text/plain"] == "[1, 2]")
    expect(shared().get_variable("given") == {"a": [1, 2]})
    reply = run("print(given_too)", variables={"given_too": 7})
    expect(text(reply) == "7\n", reply)


class Mended(KernelWebSocketClient):
    """The client, with its reading of v1 frames as it was meant."""

    def _on_message(self, socket, message):
        if self._subprotocol != JupyterSubprotocol.V1:
            return super()._on_message(socket, message)
        channel, parts = deserialize_msg_from_ws_v1(message)
        received = self.session.deserialize(parts)
        getattr(self, f"_{channel}_msg_queue").put_nowait(received)
        self._message_received.set()


@check("the framing v1.kernel.websocket.jupyter.org (client mended)")
def _():
    kernel = connect(subprotocol=JupyterSubprotocol.V1)
    kernel._manager.client_factory = Mended
    kernel.start()
    try:
        chosen = kernel._manager.client.kernel_socket.sock.subprotocol
        if chosen is None:
            raise Skip("the server does not offer it")
        expect(chosen == "v1.kernel.websocket.jupyter.org", chosen)
        outputs = []
        reply = kernel.execute_interactive(
            "print('ä☃')\n6 * 7", timeout=20, output_hook=partial(output_hook, outputs), user_expressions={"one": "1"}
        )
        content = reply["content"]
        expect(content["status"] == "ok" and content["user_expressions"]["one"]["data"]["text/plain"] == "1", content)
        expect([output["output_type"] for output in outputs] == ["stream", "execute_result"], outputs)
        expect(outputs[0]["text"] == "ä☃\n" and outputs[1]["data"]["text/plain"] == "42", outputs)
        expect(kernel.kernel_info["language_info"]["name"] == "python")
        # In v1 the headers have no copy outside of them.
        expect(reply["parent_header"]["session"] == kernel._manager.client.session.session, reply["parent_header"])
    finally:
        end(kernel)


@check("a message with buffers, in the default framing")
def _():
    client = shared()._manager.client
    message = client.session.msg("comm_msg", {"comm_id": "nonesuch", "data": {}})
    message["buffers"] = [b"\x00\x01\xff", b"second"]
    client.shell_channel.send(message)
    expect(text(run("print('alive')")) == "alive\n")


@check("nonsense on the connection")
def _():
    kernel = shared()
    address = URL.replace("http", "ws", 1) + f"/api/kernels/{kernel.id}/channels?token={options.token}&session_id=nonsense"
    for frame in ("", "no JSON", "[]", "{}", '{"header": 5}', '{"header": {"msg_type": "execute_request"}, "channel": "x"}'):
        socket = websocket.create_connection(address, timeout=10)
        socket.send(frame)
        time.sleep(0.1)
        socket.close()
    for frame in (b"", b"\xff" * 3, b"\xff" * 40, (10**9).to_bytes(4, "big") + b"x" * 20):
        socket = websocket.create_connection(address, timeout=10)
        socket.send_binary(frame)
        time.sleep(0.1)
        socket.close()
    expect(text(run("print('alive')")) == "alive\n")


@check("a wrong token is refused")
def _():
    try:
        connect(token="wrong-token").start()
        expect(False, "a kernel was started")
    except requests.HTTPError as error:
        expect(error.response.status_code in (401, 403), error)
    try:
        stranger = connect(shared().id, token="wrong-token")
        expect(not stranger.has_kernel, "the kernel was shown")
    except requests.HTTPError as error:
        expect(error.response.status_code in (401, 403), error)
    address = URL.replace("http", "ws", 1) + f"/api/kernels/{shared().id}/channels?token=wrong-token"
    try:
        websocket.create_connection(address, timeout=10).close()
        expect(False, "the WebSocket was opened")
    except websocket.WebSocketBadStatusException as error:
        expect(error.status_code in (401, 403), error)


@check("shutdown by a message")
def _():
    kernel = connect()
    kernel.start()
    run("1", kernel)
    # `stop(shutdown_now=False)` closes the connection before it would send this: the client's own mistake.
    kernel._manager.client.shutdown()
    reply = kernel._manager.client.get_control_msg(timeout=10)
    expect(reply["msg_type"] == "shutdown_reply" and reply["content"]["restart"] is False, reply)
    end(kernel)


@check("shutdown")
def _():
    kernel = shared()
    name = kernel.id
    end(kernel)
    expect(not kernel.has_kernel)
    expect(not connect(name).has_kernel, "it is still there")
    expect(name not in [model["id"] for model in connect().list_kernels()], "it is still listed")
    shared.kernel = None


try:
    code = suite.run()
finally:
    if shared.kernel is not None:
        end(shared.kernel)
sys.stdout.flush()
os._exit(code)  # without waiting for the client's threads; see `end`

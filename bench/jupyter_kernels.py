"""Runs in the cache's own environment, which has jupyter_client and ipykernel: kernels on request, over JSON lines.

`run` starts a kernel, executes the code, answers with its output as soon as that is there; `close` shuts all kernels down.
`open` is the same without output: it leaves the kernel idle and says its process id. `cell` and `killed` are about the kernel that
was started last, and timed here.
"""

import json
import sys
import time

from jupyter_client.manager import KernelManager

PATIENCE = 60
kernels = []


def start():
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.client()
    kernels.append((manager, client))
    client.start_channels()
    client.wait_for_ready(timeout=PATIENCE)
    return manager, client


def execute(client, code):
    """What the kernel says until it is idle again: text, images (base64), and whether there was an error."""
    request = client.execute(code, store_history=False, allow_stdin=False)
    text, images, error = "", [], None
    deadline = time.monotonic() + PATIENCE
    while True:
        message = client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
        if message["parent_header"].get("msg_id") != request:
            continue
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "stream" and content["name"] == "stdout":
            text += content["text"]
        elif kind in ("display_data", "execute_result"):
            images += [content["data"]["image/png"]] if "image/png" in content["data"] else []
        elif kind == "error":
            error = f"{content['ename']}: {content['evalue']}"
        elif kind == "status" and content["execution_state"] == "idle":
            return text, images, error


def cell(client, code):
    """Milliseconds until the kernel has both answered and said that it is idle again."""
    start = time.perf_counter()
    request = client.execute(code, store_history=False, allow_stdin=False)
    reply = of_request(client.get_shell_msg, request)
    while True:
        message = of_request(client.get_iopub_msg, request)
        if message["header"]["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            break
    elapsed = (time.perf_counter() - start) * 1000
    if reply["content"]["status"] != "ok":
        raise RuntimeError(f"{reply['content'].get('ename')}: {reply['content'].get('evalue')}")
    return elapsed


def of_request(next_message, request):
    deadline = time.monotonic() + PATIENCE
    while True:
        message = next_message(timeout=max(0.1, deadline - time.monotonic()))
        if message["parent_header"].get("msg_id") == request:
            return message


def killed(manager, client):
    """Milliseconds from a cell that ends its own process until the restarted kernel has answered. Its variables must be gone."""
    cell(client, "x = 1")
    start = time.perf_counter()
    client.execute("import os; os._exit(1)", store_history=False, allow_stdin=False)
    while manager.is_alive():
        if time.perf_counter() > start + PATIENCE:
            raise RuntimeError("the kernel did not end")
        time.sleep(0.001)
    manager.restart_kernel(now=True)
    client.wait_for_ready(timeout=PATIENCE)
    cell(client, "assert 'x' not in globals()")
    return (time.perf_counter() - start) * 1000


def close():
    while kernels:
        manager, client = kernels.pop()
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def answer(request):
    if request["op"] == "close":
        close()
        return {"ok": True}
    if request["op"] == "cell":
        return {"ok": True, "ms": cell(kernels[-1][1], request["code"])}
    if request["op"] == "killed":
        return {"ok": True, "ms": killed(*kernels[-1])}
    manager, client = start()
    text, images, error = execute(client, request["code"])
    if error:
        return {"ok": False, "error": error}
    return {"ok": True, "stdout": text, "images": images, "pid": manager.provisioner.pid}


def main():
    print(json.dumps({"ready": True}), flush=True)
    try:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                said = answer(request)
            except Exception as error:  # whatever it is, the caller lists it and goes on
                said = {"ok": False, "error": f"{type(error).__name__}: {error}"}
            print(json.dumps({"id": request["id"], **said}), flush=True)
    finally:
        close()


main()

"""Runs in the cache's own environment, which has jupyter_client and ipykernel: kernels on request, over JSON lines.

`run` starts a kernel, executes the code, answers with its output as soon as that is there; `close` shuts all kernels down.
`open` is the same without output: it leaves the kernel idle and says its process id.
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


def close():
    while kernels:
        manager, client = kernels.pop()
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def answer(request):
    if request["op"] == "close":
        close()
        return {"ok": True}
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

"""Tools: functions that a script calls and that somebody outside of the sandbox answers.

A call goes out as a frame, its answer comes in on what was standard input: a line `ID STATUS JSON`. Nothing waits in a thread:
each event loop that has somebody waiting listens for answers, and whoever reads one passes it on to the loop that it is for.
"""

import collections
import json
import os
import sys
import threading

# More calls than this wait here for their turn: who has more without an answer is ended.
MOST_AT_ONCE = 64
COROUTINE = 0x80
asyncio = None


class ToolError(RuntimeError):
    """What a tool answered instead of a result."""


# As it is shown in a traceback.
ToolError.__module__ = "__main__"


class Calls:
    def __init__(self, frames):
        self.frames = frames
        self.dumps, self.loads, self.read = json.dumps, json.loads, os.read
        # The answers are nobody else's to read.
        self.answers = os.dup(0)
        nothing = os.open("/dev/null", os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.set_blocking(self.answers, False)
        self.lock = threading.Lock()
        self.count = 0
        self.unread = bytearray()
        # Calls without an answer: the loop and the future that it is for.
        self.unanswered = {}
        self.queue = collections.deque()
        # How many wait in each loop.
        self.waiting = collections.Counter()

    async def call(self, function, arguments):
        loop = asyncio.get_running_loop()
        text = self.dumps(arguments, ensure_ascii=False, allow_nan=False)
        while len(self.unanswered) >= MOST_AT_ONCE:
            await self.turn(loop)
        answer = loop.create_future()
        # What was printed before the call is seen before it.
        try:
            sys.stdout.flush()
        except Exception:
            pass
        with self.lock:
            number = f"call_{self.count + 1:03}"
            frame = self.frames.encode(call={"id": number, "tool": function, "input": text})
            self.count += 1
            self.unanswered[number] = loop, answer
            self.frames.send(frame)
        status, text = await self.wait(loop, answer)
        result = self.loads(text)
        if status != b"0":
            raise ToolError(result)
        return result

    async def turn(self, loop):
        """Waits until there is room for one more call."""
        turn = loop.create_future()
        self.queue.append((loop, turn))
        try:
            # Answers make room, and this loop may be the only one to hear them.
            await self.wait(loop, turn)
        except asyncio.CancelledError:
            self.give_turn()
            raise

    async def wait(self, loop, future):
        """Waits for something that an answer brings, and hears answers meanwhile."""
        self.waiting[loop] += 1
        if self.waiting[loop] == 1:
            loop.add_reader(self.answers, self.listen)
        try:
            return await future
        finally:
            self.waiting[loop] -= 1
            if not self.waiting[loop]:
                del self.waiting[loop]
                loop.remove_reader(self.answers)

    def give_turn(self):
        while self.queue:
            loop, turn = self.queue.popleft()
            if not turn.done():
                return settle(loop, turn, None)

    def listen(self):
        """Reads what is there, and passes on whole lines."""
        with self.lock:
            try:
                piece = self.read(self.answers, 1 << 16)
            except (BlockingIOError, InterruptedError):
                return
            lines = []
            if piece:
                end = piece.rfind(b"\n") + 1
                if end:
                    lines = bytes(self.unread + piece[: end - 1]).split(b"\n")
                    self.unread = bytearray(piece[end:])
                else:
                    self.unread += piece
            else:
                lines = [b'%s 1 "there will be no more answers"' % number.encode() for number in self.unanswered]
        for line in lines:
            number, status, text = line.split(b" ", 2)
            loop, answer = self.unanswered.pop(number.decode(), (None, None))
            if loop is not None:
                settle(loop, answer, (status, text))
            self.give_turn()


def settle(loop, future, result):
    def do():
        if not future.done():
            future.set_result(result)

    try:
        loop.call_soon_threadsafe(do)
    except RuntimeError:
        pass  # the loop is closed, and nobody waits


def give(names, functions, frames):
    """Puts the functions into a script's names."""
    global asyncio
    import asyncio

    calls = Calls(frames)
    for name in functions:
        names[name] = make(calls, name)
    # What scripts of models take for granted.
    names.update(asyncio=asyncio, json=json, os=os, sys=sys, ToolError=ToolError, ToolExecutionError=ToolError)


def make(calls, name):
    async def function(*positional, **arguments):
        if positional:
            raise TypeError(f"{name}() takes keyword arguments only, as in {name}(key=value)")
        # As if it had not been given: that is what a model means by it.
        return await calls.call(name, {key: value for key, value in arguments.items() if value is not None})

    function.__name__ = function.__qualname__ = name
    function.__module__ = "__main__"
    return function


RETURN = "'return' outside function"


def as_function(tree, path, flags):
    """A script that returns, as the body of a function; the code that calls it."""
    import ast

    names = ast.parse("async def script(): pass\nawait script()")
    names.body[0].body = tree.body
    for node in (names.body[0], *ast.walk(names.body[1])):
        node.lineno = node.end_lineno = node.col_offset = node.end_col_offset = 1
    return compile(ast.fix_missing_locations(names), path, "exec", flags, dont_inherit=True)


def run_awaiting(before, last, names):
    """Runs a script that awaits something itself, in a loop of its own; the value of its last line."""

    async def script():
        value = None
        for code in (before, last):
            if code is not None:
                value = eval(code, names)
                if code.co_flags & COROUTINE:
                    value = await value
        return value if last is not None else None

    return asyncio.run(script())

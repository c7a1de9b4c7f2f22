"""A session's kernel: does what it is told, one thing after the other, with everything that cells leave in its memory.

Told to, it makes a copy of itself that waits as a checkpoint (inside of redoma's library: the copy runs nothing of this
until it is woken). Code can change anything in here; it then harms its own session only.
"""

import builtins
import ctypes
import os
import sys

# Functions below take their builtins from here, whatever cells do to the real ones.
__builtins__ = dict(vars(builtins))

# How much of a cell's code comes in one message with the rest of what is said about it.
MOST_BYTES = 160 << 10
NODE_SCRIPT = "/home/sandbox/.redoma-node.js"
REHEARSAL = "number = 0\nnumber += 1\n"


class Line:
    """The way to the supervisor, through redoma's library."""

    def __init__(self, library, waiting_library, encode):
        self.begin = library.redoma_kernel_begin
        self.say_bytes = library.redoma_kernel_say
        self.foreign = library.redoma_kernel_foreign
        self.copy = library.redoma_kernel_checkpoint
        self.look, self.is_wanted = library.redoma_kernel_look, library.redoma_kernel_is_wanted
        # Called without the interpreter's lock: other threads go on while nobody says anything.
        self.wait = waiting_library.redoma_kernel_receive
        self.wait.restype = ctypes.c_ssize_t
        self.buffer = ctypes.create_string_buffer(MOST_BYTES)
        self.number = ctypes.c_uint64
        self.string_at, self.encode = ctypes.string_at, encode

    def receive(self):
        """The next message; None if there will be no more."""
        while True:
            try:
                length = self.wait(self.buffer, MOST_BYTES)
                if length >= 0:
                    return self.string_at(self.buffer, length) if length else None
            except BaseException:
                pass  # whatever a signal handler of the code's raises

    def say(self, **words):
        text = self.encode(words).encode()
        self.say_bytes(text, len(text))


class Session:
    def __init__(self, line, frames, names, modules):
        self.line, self.frames = line, frames
        self.modules = modules
        self.kernel = modules["kernel"].Kernel(self.show, names)
        self.kernel.upkeep.look = line.look
        self.shell = self.node = None
        self.exit, self.before, self.in_child, self.in_parent = (
            os._exit,
            ctypes.pythonapi.PyOS_BeforeFork,
            ctypes.pythonapi.PyOS_AfterFork_Child,
            ctypes.pythonapi.PyOS_AfterFork_Parent,
        )
        self.encode = line.encode

    def show(self, output):
        """Sends something that a cell shows. What can't be written down is left out."""
        try:
            text = self.encode(output)
        except ValueError:
            for content in output.values():
                data = content.get("data", {})
                for mime in [mime for mime in data if not isinstance(data[mime], str)]:
                    del data[mime]
            text = self.encode(output)
        self.send(text)

    def send(self, text):
        rest = memoryview(self.frames.start + text.encode() + b"\n")
        while rest:
            rest = rest[self.frames.write(self.frames.output, rest) :]

    def serve(self):
        self.line.begin()
        self.line.say(awake=0)
        while True:
            message = self.line.receive()
            if message is None:
                self.exit(0)
            head, _, code = message.partition(b"\n")
            order, *words = head.decode().split(" ")
            if order == "cell":
                self.cell(code, *words)
            elif order == "again":
                self.again(code, int(words[0]))
            elif order == "checkpoint":
                self.checkpoint(int(words[0]))
            elif order == "tidy":
                self.tidy()

    def rest_of(self, code, length):
        """All of a cell's code, of which this came with the order."""
        parts, left = [code], length - len(code)
        while left > 0:
            part = self.line.receive()
            if part is None:
                self.exit(0)
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def cell(self, code, number, language, length, node_memory):
        number, length = int(number), int(length)
        if len(code) < length:
            code = self.rest_of(code, length)
        code = code.decode("utf-8", "replace")
        try:
            if language == "py":
                done = self.kernel.run(code, number)
            else:
                done = self.other(language, code, number, int(node_memory))
        except KeyboardInterrupt:
            done = {"status": "error", "exit_code": 130}
        except BaseException as error:
            done = {"status": "error", "notes": [f"the kernel itself failed: {type(error).__name__}"]}
        self.send(self.encode({"done": {"number": number, **done}}))

    def again(self, code, number):
        """In a checkpoint that has been woken: a cell that ran after it was made."""
        try:
            fine = self.kernel.repeat(code.decode("utf-8", "replace"), number)
        except BaseException:
            fine = False
        self.line.say(again=number, fine=fine)

    def other(self, language, code, number, node_memory):
        """A cell in another language, which can be interrupted as one in Python can."""
        self.kernel.running = True
        try:
            if language == "bash":
                return self.bash().run(code)
            done = self.javascript(node_memory).run(code, number)
            if done.pop("restarted", False):
                done["notes"] = [*done.get("notes", ()), "JavaScript's variables of earlier cells are gone."]
            return done
        finally:
            self.kernel.running = False

    def bash(self):
        if self.shell is None:
            self.shell = self.modules["shell"].Shell()
        return self.shell

    def javascript(self, memory):
        if self.node is None:
            with open(NODE_SCRIPT, "w") as file:
                file.write(self.modules["node_script"])
            node = self.modules["node"].Node
            self.node = node(self.show, NODE_SCRIPT, memory_mb=memory, await_promises=True)
        return self.node

    def checkpoint(self, number):
        known = self.known_lines()
        foreign = self.line.foreign((ctypes.c_int * len(known))(*known), len(known))
        if foreign > 0:
            return self.line.say(none=number, foreign=foreign)
        self.before()
        self.kernel.repeats.note_checkpoint()
        became = self.line.copy(self.line.number(number))
        if became == 1:
            self.go_on(number)
        else:
            self.in_parent()
            if became != 0:
                self.line.say(none=number, foreign=0)
            else:
                self.rehearse()

    def rehearse(self):
        """Does what the next cell will do, for nothing: each page that is written to for the first time since the copy has to
        be copied by the kernel, and those copies are made now, while nobody waits. If somebody does, their cell does it."""
        if self.line.is_wanted():
            return
        kernel = self.kernel
        names, number = kernel.names, kernel.number
        try:
            kernel.names = {"__name__": "__main__"}
            # What it has to say belongs to the next cell.
            kernel.notes = kernel.run(REHEARSAL, 0).get("notes", [])
            kernel.forget_source("<cell 0>")
            self.encode({"done": {"number": number, "status": "ok"}})
        except BaseException:
            pass
        finally:
            kernel.names, kernel.number = names, number

    def known_lines(self):
        """Descriptors that no one waits to be closed: those of an event loop with itself, and with Node."""
        lines = [end for end, _ in self.node.pipes] if self.node is not None else []
        loop = self.kernel.loop
        try:
            lines += [end.fileno() for end in (loop._ssock, loop._csock)]
        except BaseException:
            pass  # there is none, or it has none
        return lines

    def go_on(self, number):
        """In a checkpoint that has been woken. Everything is as it was, random numbers to come included."""
        random = sys.modules.get("random")
        state = None
        try:
            state = random.getstate()
        except BaseException:
            pass
        self.in_child()
        try:
            random.setstate(state)
        except BaseException:
            pass
        if self.node is not None:
            # It was another's child, and is gone.
            self.node.forget()
        self.line.say(awake=number)

    def tidy(self):
        try:
            self.kernel.tidy()
            ctypes.CDLL(None).malloc_trim(0)
        except BaseException:
            pass
        self.line.say(tidied=True)

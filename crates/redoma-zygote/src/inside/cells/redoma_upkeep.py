"""What is seen to between cells: what one leaves is put right, and what goes on beside them is noted."""

from redoma_guarded import BUILTINS as __builtins__

import _io
import _signal
import _thread
import gc
import os
import sys

from redoma_guarded import read_file

gc_collect = gc.collect


def companions(count, one, many):
    subject = f"1 {one} goes" if count == 1 else f"{count} {many} go"
    return f"{subject} on: should a later cell have to be ended by force, {'it is' if count == 1 else 'they are'} lost"


def living_children():
    """How many processes this one has started that have not ended."""
    count = 0
    for task in os.listdir("/proc/self/task"):
        try:
            for child in read_file(f"/proc/self/task/{task}/children").split():
                state = read_file(f"/proc/{child.decode()}/stat").rpartition(b")")[2].split()[0]
                count += state not in (b"Z", b"X")
        except OSError:
            pass
    return count


class Upkeep:
    """`outputs` is told what had to be put right."""

    STDOUT_IS_CLOSED, STDERR_IS_CLOSED, HAS_CHILDREN = 1, 2, 4

    def __init__(self, outputs):
        self.outputs = outputs
        # As they are now, before a cell can change them.
        self.waitid, self.fstat, self.dup2, self.thread_count = os.waitid, os.fstat, os.dup2, _thread._count
        # Somebody may have a way to do the same at once.
        self.look = self.look_one_by_one
        self.signal, self.getsignal = _signal.signal, _signal.getsignal
        self.settrace, self.gettrace, self.setprofile, self.getprofile = (
            sys.settrace, sys.gettrace, sys.setprofile, sys.getprofile)  # fmt: skip
        self.recursion_limit, self.set_recursion_limit = sys.getrecursionlimit, sys.setrecursionlimit
        self.waits_for = os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT
        self.last_threads = self.last_children = 0
        self.on_interrupt = outputs.interrupt
        self.set_up_streams()

    def set_up_streams(self):
        self.streams = {"stdout": sys.stdout, "stderr": sys.stderr}
        # What the names mean now, to tell when a cell has changed it.
        self.current = dict(self.streams)
        self.spare = {}
        for number in (1, 2):
            try:
                self.spare[number] = os.dup(number)
            except OSError:
                pass
        try:
            empty = os.fstat(0).st_rdev == os.stat("/dev/null").st_rdev
        except OSError:
            empty = False
        if not empty or sys.stdin is None:
            sys.stdin = sys.__stdin__ = _io.open("/dev/null")
        self.stdin = sys.stdin
        self.null = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
        self.null_device = os.fstat(self.null).st_rdev
        # Where they are put while nothing is to be printed.
        self.shelf = {number: os.dup(self.null) for number in (1, 2)}

    def listen(self):
        self.signal(_signal.SIGINT, self.on_interrupt)

    def look_one_by_one(self):
        """What holds of the above."""
        seen = self.HAS_CHILDREN
        for number, is_closed in ((1, self.STDOUT_IS_CLOSED), (2, self.STDERR_IS_CLOSED)):
            try:
                self.fstat(number)
            except OSError:
                seen |= is_closed
        try:
            self.waitid(*self.waits_for)
        except OSError:
            seen &= ~self.HAS_CHILDREN
        return seen

    def finish(self):
        """Puts right what the next cell, and the kernel itself, can't do without."""
        if self.gettrace() is not None:
            self.settrace(None)
        if self.getprofile() is not None:
            self.setprofile(None)
        if self.recursion_limit() < 400:
            self.set_recursion_limit(1000)
            self.outputs.note("sys.setrecursionlimit() was too low to go on with: it is 1000 again")
        if self.getsignal(_signal.SIGINT) is not self.on_interrupt:
            self.signal(_signal.SIGINT, self.on_interrupt)
        self.outputs.flush()
        self.outputs.captured = None
        seen = self.look()
        self.mend("stdout", 1, seen & self.STDOUT_IS_CLOSED)
        self.mend("stderr", 2, seen & self.STDERR_IS_CLOSED)
        stdin = getattr(sys, "stdin", None)
        if stdin is None or getattr(stdin, "closed", False) is True:
            sys.stdin = sys.__stdin__ = self.stdin = _io.open("/dev/null")
        self.note_companions(seen & self.HAS_CHILDREN)

    def mend(self, name, number, is_closed):
        if is_closed and number in self.spare:
            self.dup2(self.spare[number], number)
            self.outputs.note(f"the cell closed its own {name}: it is open again")
        stream = getattr(sys, name, None)
        if stream is self.current[name]:
            # Nearly always.
            try:
                if stream is None or not stream.closed:
                    return
            except BaseException:
                pass
        # The last one goes now, and may close this one as it does.
        changed = stream is not self.current[name]
        self.current[name] = stream
        try:
            gone = stream is None or stream.closed is True
        except ValueError:
            gone = True
        except BaseException:
            gone = False
        if gone:
            stream = _io.open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
            self.streams[name] = stream
            setattr(sys, f"__{name}__", stream)
            setattr(sys, name, stream)
            self.outputs.note(f"sys.{name} was closed or taken away: there is a new one")
            self.current[name] = stream
        elif changed and stream is not self.streams[name]:
            back = f"sys.{name} = sys.__{name}__"
            self.outputs.note(f"sys.{name} is something else now: what is printed goes there. {back} undoes it")

    def note_companions(self, has_children):
        """Says what goes on beside the cells, when that has changed."""
        threads = self.thread_count()
        if threads != self.last_threads:
            self.last_threads = threads
            if threads > 0:
                self.outputs.note(companions(threads, "thread", "threads"))
        children = living_children() if has_children else 0
        if children != self.last_children:
            self.last_children = children
            if children > 0:
                self.outputs.note(companions(children, "process", "processes"))

    def silently(self, function, *arguments):
        """What comes of it, and nothing that it prints."""
        for number, place in self.shelf.items():
            self.dup2(number, place, False)
            self.dup2(self.null, number)
        try:
            return function(*arguments)
        finally:
            for number, place in self.shelf.items():
                self.dup2(place, number)
                self.dup2(self.null, place, False)

    def can_be_silent(self):
        """Whether what that needs is still there."""
        return all(self.fstat(number).st_rdev == self.null_device for number in (self.null, *self.shelf.values()))

    def tidy(self):
        """Gives back memory that is free."""
        try:
            gc_collect()
            ctypes = sys.modules.get("ctypes")
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if ctypes is not None else None
            if trim is not None:
                trim(0)
        except BaseException:
            pass

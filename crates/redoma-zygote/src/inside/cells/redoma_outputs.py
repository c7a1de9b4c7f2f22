"""What goes from a kernel to whoever looks: outputs, one at a time and in order, and notes for a cell's answer."""

from redoma_guarded import BUILTINS as __builtins__

import _thread
import os
import sys

from redoma_figures import Figures
from redoma_forms import Formatters, Forms, is_kind_of, is_wanted
from redoma_texts import exact, pure, short


def write(stream, text):
    if stream is not None:
        stream.write(text)


def say(text):
    write(sys.stdout, text + "\n")


class Outputs:
    """`show` takes one output at a time. It is called from the thread that made the output."""

    def __init__(self, show):
        self.show = show
        # As they are now, before a cell can change them.
        self.getpid, self.get_ident = os.getpid, _thread.get_ident
        self.main, self.process = _thread.get_ident(), os.getpid()
        self.lock = _thread.allocate_lock()
        # Whether an interrupt is to end what is running, and whether one came while that could not be.
        self.running = self.missed = False
        self.notes, self.captured = [], None
        self.precision = None
        self.formatters = Formatters()
        self.figures = Figures(self.display)

    def interrupt(self, signal, frame):
        if self.running:
            if self.getpid() == self.process:
                # Whoever asks does it again if nobody says that it was heard.
                self.running = False
                try:
                    self.pass_on({"interrupted": {}})
                finally:
                    self.running, self.missed = True, False
            raise KeyboardInterrupt
        self.missed = True

    def note(self, text):
        if len(self.notes) < 20 and text not in self.notes:
            self.notes.append(exact(text))

    def flush(self):
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name, None)
            try:
                if stream is not None and not stream.closed:
                    stream.flush()
            except KeyboardInterrupt:
                raise
            except BaseException:
                pass

    def send(self, output):
        if self.captured is not None:
            self.captured.append(output)
            return
        if self.getpid() != self.process:
            # A copy of this process has no way to the supervisor but its output.
            data = (output.get("display") or output.get("result") or {}).get("data", {})
            if data:
                say(data.get("text/plain", ""))
            return
        self.flush()
        if self.get_ident() != self.main:
            self.pass_on(output)
            return
        # An output is sent as a whole or not at all: an interrupt waits.
        was, self.running = self.running, False
        try:
            self.pass_on(output)
        finally:
            self.running = was
        if was and self.missed:
            self.missed = False
            raise KeyboardInterrupt

    def pass_on(self, output):
        with self.lock:
            try:
                self.show(output)
            except Exception as error:
                self.note(f"an output could not be sent: {short(error)}")

    def forms(self, value, wanted=(None, None)):
        """Its forms; None if it has shown itself."""
        forms = Forms(self.note, self.formatters)
        if self.precision is not None and type(value) is float:
            return {"text/plain": f"{value:.{self.precision}f}"}, {}
        if not forms.fill(value, wanted):
            return None
        data = {mime: form for mime, form in forms.data.items() if is_wanted(mime, wanted)}
        return data, {mime: more for mime, more in forms.metadata.items() if mime in data}

    def display(self, value, wanted=(None, None), metadata=None, id=None, raw=False, update=False):
        if raw:
            forms = Forms(self.note, self.formatters)
            for mime, form in dict(value).items():
                forms.add(exact(mime), form, (metadata or {}).get(mime))
            found = forms.data, forms.metadata
        else:
            found = self.forms(value, wanted)
            if is_kind_of(value, "matplotlib.figure", "Figure"):
                self.figures.remember(value)
        if found is None:
            return
        data, more = found
        if metadata and not raw:
            more = {**more, **pure(metadata)}
        if data:
            self.send({"display": {"data": data, "metadata": more, "id": id, "update": bool(update)}})

"""Stand-ins for IPython: `get_ipython()`, and the modules that code for notebooks takes for granted."""

from redoma_guarded import BUILTINS as __builtins__

import _frozen_importlib
import re
import sys

from redoma_commands import PIP_COMMAND, Lines, UsageError, expand, packages, run_program, shell_program
from redoma_display import (
    DisplayHandle, clear_output, display, publish_display_data, show_as, update_display)  # fmt: skip
from redoma_guarded import live, nothing
from redoma_magics import Magics
from redoma_objects import (
    HTML, JSON, SVG, Audio, Code, DisplayObject, FileLink, FileLinks, IFrame, Image, Javascript, Latex, Markdown, Math,
    Pretty, TextDisplayObject, Video, YouTubeVideo)  # fmt: skip


class Harmless:
    """Whatever somebody does with it, nothing happens."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return nothing


class Result:
    """What `run_cell` gives."""

    def __init__(self, result, error):
        self.result, self.error_in_exec, self.error_before_exec, self.success = result, error, None, error is None

    def raise_error(self):
        if self.error_in_exec is not None:
            raise self.error_in_exec


class Shell:
    """What `get_ipython()` gives: what code for notebooks asks for most."""

    colors = "NoColor"

    def __init__(self, kernel):
        self.magics = Magics(kernel)
        self._kernel = kernel
        self.config = {}
        self.kernel = self.events = self.display_pub = self.history_manager = Harmless()
        self.display_formatter = Harmless()
        self.display_formatter.formatters = kernel.formatters

    @property
    def user_ns(self):
        return self._kernel.names

    user_global_ns = user_ns

    @property
    def execution_count(self):
        return self._kernel.number

    def run_line_magic(self, name, line, *more):
        return self.magics.line(name, line)

    def run_cell_magic(self, name, line, cell):
        return self.magics.cell(name, line, cell)

    def magic(self, line):
        name, _, rest = line.lstrip("%").partition(" ")
        return self.magics.line(name, rest)

    def register_magic_function(self, function, magic_kind="line", magic_name=None):
        for kind in ("line", "cell"):
            if kind in magic_kind:
                self.magics.own[kind][magic_name or function.__name__] = function

    def register_magics(self, *classes):
        pass

    def system(self, command):
        command = expand(command, sys._getframe(1).f_locals)
        found = PIP_COMMAND.fullmatch(command)
        code = 0
        if found is not None:
            # Without the number of what is redirected.
            install = re.sub(r"\s\d$", "", found[1]) if found[2].startswith(">") else found[1]
            code = 0 if packages(install) else 1
            # What comes after it, if it is no part of it.
            after = re.fullmatch(r"[^&;]*(&&|;)(.*)", found[2], re.S)
            command = after[2] if after is not None and (after[1] == ";" or code == 0) else ""
        if command.strip():
            code, _ = run_program([shell_program(), "-c", command])
        self._kernel.names["_exit_code"] = code

    system_raw = system_piped = system

    def getoutput(self, command, **more):
        command = expand(command, sys._getframe(1).f_locals)
        code, text = run_program([shell_program(), "-c", command], collect=True)
        self._kernel.names["_exit_code"] = code
        return Lines(text.splitlines())

    def run_cell(self, code, *more, **others):
        value = error = None
        try:
            value = self._kernel.execute(code, "<run_cell>")
            if value is not None:
                self._kernel.give_result(value)
        except Exception as raised:
            error = raised
            self._kernel.fail(raised)
        return Result(value, error)

    def ev(self, text):
        return eval(text, self._kernel.names)

    def ex(self, text):
        exec(text, self._kernel.names)

    def push(self, names, **more):
        self._kernel.names.update(names)

    def reset(self, *more, **others):
        self._kernel.reset()

    enable_gui = enable_matplotlib = enable_pylab = set_custom_exc = showtraceback = set_next_input = nothing


def get_ipython():
    """The shell that this code runs in."""
    return live.kernel.shell


DISPLAY = (DisplayObject, TextDisplayObject, HTML, Markdown, Latex, Math, SVG, Javascript, Pretty, Code, JSON, Image,
           Audio, Video, IFrame, YouTubeVideo, FileLink, FileLinks, DisplayHandle, display, update_display,
           clear_output, publish_display_data)  # fmt: skip
for thing in DISPLAY:
    # Where they can be found again when they are unpickled.
    thing.__module__ = "IPython.core.display"


def display_module():
    content = {thing.__name__: thing for thing in DISPLAY}
    for kind, mime in (("html", "text/html"), ("markdown", "text/markdown"), ("latex", "text/latex"),
                       ("png", "image/png"), ("svg", "image/svg+xml"), ("jpeg", "image/jpeg"),
                       ("json", "application/json"), ("javascript", "application/javascript"),
                       ("pretty", "text/plain")):  # fmt: skip
        content[f"display_{kind}"] = show_as(kind, mime)
    content.update(set_matplotlib_formats=nothing, set_matplotlib_close=nothing)
    return content


def ipython_module():
    return {
        "get_ipython": get_ipython,
        "InteractiveShell": Shell,
        "start_ipython": nothing,
        "embed": nothing,
        "__version__": "8.30.0",
        "version_info": (8, 30, 0, ""),
        "__path__": [],
    }


def magic_module():
    def register(kind):
        def decorator(function):
            live.kernel.shell.register_magic_function(function, kind)
            return function

        return decorator

    def register_any(function_or_name):
        return function_or_name if callable(function_or_name) else (lambda function: function)

    return {
        "register_line_magic": register("line"),
        "register_cell_magic": register("cell"),
        "register_line_cell_magic": register("line_cell"),
        "Magics": object,
        "magics_class": lambda kind: kind,
        "line_magic": register_any,
        "cell_magic": register_any,
        "line_cell_magic": register_any,
    }


# What is made when somebody imports it. The real ones, where there are any, are found before.
STAND_INS = {
    "IPython": ipython_module,
    "IPython.display": display_module,
    "IPython.core": lambda: {"__path__": []},
    "IPython.core.display": display_module,
    "IPython.core.display_functions": display_module,
    "IPython.core.getipython": lambda: {"get_ipython": get_ipython},
    "IPython.core.interactiveshell": lambda: {"InteractiveShell": Shell},
    "IPython.core.magic": magic_module,
    "IPython.core.error": lambda: {"UsageError": UsageError},
    "IPython.terminal": lambda: {"__path__": []},
    "IPython.terminal.interactiveshell": lambda: {"TerminalInteractiveShell": type("TerminalInteractiveShell", (), {})},
}


class StandIns:
    """Finds modules that are not installed, but that code for notebooks takes for granted."""

    def find_spec(self, name, path=None, target=None):
        if name not in STAND_INS:
            return None
        return _frozen_importlib.ModuleSpec(name, self, origin="redoma", is_package=name.count(".") == 0)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__dict__.update(STAND_INS[module.__name__]())
        if module.__name__ == "IPython":
            # Some only import the package and then use this.
            import IPython.display

"""Magics: `%name` and `%%name`."""

from redoma_guarded import BUILTINS as __builtins__

import _io
import builtins
import os
import re
import sys
import time

from redoma_commands import UsageError, expand, packages, run_program, words
from redoma_display import display
from redoma_forms import plain
from redoma_guarded import live, read_file, type_name
from redoma_outputs import say, write
from redoma_texts import short


class Captured:
    """What a cell printed and showed."""

    def __init__(self):
        self.out, self.err, self.outputs = _io.StringIO(), _io.StringIO(), []

    @property
    def stdout(self):
        return self.out.getvalue()

    @property
    def stderr(self):
        return self.err.getvalue()

    def show(self):
        write(sys.stdout, self.stdout)
        write(sys.stderr, self.stderr)
        for output in self.outputs:
            live.kernel.send(output)

    __call__ = show

    def __str__(self):
        return self.stdout

    def __repr__(self):
        return f"<captured: {len(self.stdout)} characters of output, {len(self.outputs)} outputs>"


def duration(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


class Magics:
    """`%name` is `line_name`, `%%name` is `cell_name`."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.own = {"line": {}, "cell": {}}
        self.last_folder = None

    def find(self, kind, name):
        function = self.own[kind].get(name)
        if function is None and name.isidentifier():
            function = getattr(self, f"{kind}_{name}", None)
        if function is not None:
            return function
        if kind == "line" and name.startswith("%"):
            raise UsageError(f"%{name} must be in the first line of its cell")
        mark = "%" if kind == "line" else "%%"
        other = {"line": "cell", "cell": "line"}[kind]
        if name in self.own[other] or hasattr(self, f"{other}_{name}"):
            raise UsageError(f"there is no {mark}{name}, but there is {'%' if mark == '%%' else '%%'}{name}")
        raise UsageError(f"there is no magic {mark}{name}. There are: {self.all()}")

    def all(self):
        names = []
        for kind, mark in (("line", "%"), ("cell", "%%")):
            known = [name[5:] for name in dir(type(self)) if name.startswith(f"{kind}_")]
            names += sorted(mark + name for name in {*known, *self.own[kind]})
        return " ".join(names)

    def line(self, name, line):
        return self.find("line", name)(line)

    def cell(self, name, line, body):
        return self.find("cell", name)(line, body)

    def python(self, code):
        """Runs code of a line; its value."""
        return self.kernel.execute(code, "<magic>")

    def line_lsmagic(self, line):
        say(self.all())

    def accept(self, line):
        """For what would change nothing here."""

    line_matplotlib = line_pylab = line_load_ext = line_reload_ext = line_unload_ext = line_autoreload = accept
    line_config = line_xmode = line_colors = line_pdb = line_gui = line_automagic = line_autosave = accept
    line_logstart = line_logstop = line_autocall = line_doctest_mode = accept

    def line_debug(self, line):
        say("nobody can type into a debugger here: print what you want to see")

    def line_precision(self, line):
        digits = line.strip().strip("%").strip(".f")
        if digits and not digits.isdigit():
            raise UsageError("%precision takes a number of digits")
        self.kernel.precision = int(digits) if digits else None
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.set_printoptions(precision=int(digits) if digits else 8)

    def line_pwd(self, line):
        return os.getcwd()

    def line_cd(self, line):
        path = (words(expand(line)) or [self.kernel.workspace])[0]
        if path == "-":
            path = self.last_folder or os.getcwd()
        try:
            before = os.getcwd()
        except OSError:
            before = None
        os.chdir(os.path.expanduser(path))
        self.last_folder = before
        say(os.getcwd())

    def line_env(self, line):
        line = line.strip()
        if not line:
            return dict(os.environ)
        name, separator, value = line.partition("=" if "=" in line else " ")
        if not separator:
            if name not in os.environ:
                raise UsageError(f"there is no environment variable {name}")
            return os.environ[name]
        name, value = name.strip(), expand(value.strip())
        os.environ[name] = value
        say(f"env: {name}={value}")

    line_set_env = line_env

    def user_names(self):
        given, names = self.kernel.given, self.kernel.names
        return sorted(name for name in names if type(name) is str and not name.startswith("_") and name not in given)

    def line_who(self, line):
        say("   ".join(self.user_names()) or "no names yet")

    def line_who_ls(self, line):
        return self.user_names()

    def line_whos(self, line):
        rows = [("Variable", "Type", "Data/Info")]
        for name in self.user_names():
            value = self.kernel.names[name]
            try:
                if hasattr(type(value), "shape"):
                    text = f"shape {value.shape}"
                elif type(value) in (list, tuple, dict, set, frozenset):
                    text = f"n={len(value)}"
                else:
                    text = repr(value)
            except Exception as error:
                text = short(error)
            rows.append((name, type_name(type(value)), text.replace("\n", " ")[:60]))
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        for name, kind, text in rows:
            say(f"{name:<{widths[0]}}  {kind:<{widths[1]}}  {text}")

    def line_reset(self, line):
        self.kernel.reset()

    def line_history(self, line):
        for number, code in enumerate(self.kernel.sent):
            if code:
                say(f"{number}: {code}" if "-n" in line else code)

    line_hist = line_history

    def line_system(self, line):
        return self.kernel.shell.getoutput(line)

    line_sx = line_system

    def line_pip(self, line):
        self.kernel.names["_exit_code"] = 0 if packages(expand(line)) else 1

    line_pip3 = line_conda = line_mamba = line_uv = line_pip

    def command(name):
        def run(self, line):
            self.kernel.shell.system(f"{name} {line}")

        return run

    line_ls, line_ll, line_cat, line_mkdir = command("ls"), command("ls -lF"), command("cat"), command("mkdir")
    line_rmdir, line_rm, line_cp, line_mv = command("rmdir"), command("rm"), command("cp"), command("mv")
    line_man, line_less, line_more = command("man"), command("cat"), command("cat")
    del command

    def line_run(self, line):
        """Runs a file as a program; its names are then here."""
        arguments = words(expand(line))
        inside = "-i" in arguments[:1]
        while arguments and arguments[0].startswith("-"):
            arguments.pop(0)
        if not arguments:
            raise UsageError("%run needs a file")
        path = os.path.expanduser(arguments[0])
        if not os.path.exists(path) and os.path.exists(path + ".py"):
            path += ".py"
        code = compile(read_file(path), os.path.abspath(path), "exec", 0, True)
        module = type(sys)("__main__")
        if inside:
            module.__dict__.update(self.kernel.names)
        module.__dict__.update(__name__="__main__", __file__=os.path.abspath(path), __builtins__=builtins)
        before = sys.modules.get("__main__"), sys.argv
        sys.modules["__main__"], sys.argv = module, [path, *arguments[1:]]
        try:
            exec(code, module.__dict__)
        except SystemExit as error:
            if error.code not in (None, 0):
                raise
        finally:
            sys.modules["__main__"], sys.argv = before
            hidden = ("__name__", "__file__", "__builtins__", "__doc__", "__loader__", "__spec__", "__package__")
            self.kernel.names.update((name, value) for name, value in module.__dict__.items() if name not in hidden)

    def timed(self, function):
        before, wall = os.times(), time.perf_counter()
        try:
            return function()
        finally:
            wall, after = time.perf_counter() - wall, os.times()
            user, system = after.user - before.user, after.system - before.system
            say(f"CPU times: user {duration(user)}, sys: {duration(system)}, total: {duration(user + system)}")
            say(f"Wall time: {duration(wall)}")

    def line_time(self, line):
        return self.timed(lambda: self.python(line))

    def cell_time(self, line, body):
        return self.timed(lambda: self.kernel.execute_body(body))

    def line_timeit(self, line):
        return self.measure(line, "pass")

    def cell_timeit(self, line, body):
        options = re.match(r"(?:\s*-[nrtcpqo]\s*\d*)*", line)[0]
        return self.measure(options + " " + body, line[len(options) :].strip() or "pass")

    def measure(self, text, setup):
        """How long a statement takes. For about two seconds, unless it takes longer once."""
        import timeit

        options = dict(re.findall(r"-([nrtcpqo])\s*(\d*)", re.match(r"(?:\s*-[nrtcpqo]\s*\d*)*", text)[0]))
        statement = re.sub(r"^(?:\s*-[nrtcpqo]\s*\d*)*[ \t]*", "", text).strip("\n")
        timer = timeit.Timer(statement, setup, globals=self.kernel.names)
        count, once = int(options.get("n") or 1), timer.timeit(int(options.get("n") or 1))
        while not options.get("n") and once < 0.02 and count < 10**8:
            count *= 10
            once = timer.timeit(count)
        runs = int(options.get("r") or max(1, min(7, int(1.6 / max(once, 1e-9)))))
        times = [once / count] if runs == 1 else [timer.timeit(count) / count for _ in range(runs)]
        mean = sum(times) / len(times)
        deviation = (sum((value - mean) ** 2 for value in times) / len(times)) ** 0.5
        if "q" not in options:
            times_run = f"{runs} run{'s' if runs > 1 else ''}, {count:,} loop{'s' if count > 1 else ''} each"
            say(f"{duration(mean)} ± {duration(deviation)} per loop (mean ± std. dev. of {times_run})")
        return times if "o" in options else None

    def line_prun(self, line):
        import cProfile
        import pstats

        profile = cProfile.Profile()
        try:
            profile.runctx(line, self.kernel.names, self.kernel.names)
        finally:
            pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(30)

    def cell_prun(self, line, body):
        self.line_prun(body)

    def look_up(self, name):
        if name.startswith("%"):
            return self.find("cell" if name.startswith("%%") else "line", name.lstrip("%"))
        return eval(compile(name, "<magic>", "eval", 0, True), self.kernel.names)

    def describe(self, name, parts):
        import inspect

        try:
            value = self.look_up(name)
        except (NameError, AttributeError, SyntaxError, KeyError, IndexError):
            say(f"Object `{name}` not found.")
            return
        for title, part in parts:
            try:
                if part == "signature":
                    text = (name.rpartition(".")[2] + str(inspect.signature(value))) if callable(value) else None
                elif part == "value":
                    text = None if callable(value) else plain(value)[:500]
                else:
                    text = inspect.getdoc(value) if part == "doc" else inspect.getsource(value)
            except (TypeError, ValueError, OSError):
                text = None
            if text:
                say(f"{title}: {text}" if "\n" not in text else f"{title}:\n{text}")
        say(f"Type: {type_name(type(value))}")

    def line_pinfo(self, line):
        self.describe(line.strip(), [("Signature", "signature"), ("Value", "value"), ("Docstring", "doc")])

    def line_pinfo2(self, line):
        self.describe(line.strip(), [("Signature", "signature"), ("Value", "value"), ("Source", "source")])

    def line_pdoc(self, line):
        self.describe(line.strip(), [("Docstring", "doc")])

    def line_psource(self, line):
        self.describe(line.strip(), [("Source", "source")])

    def line_pdef(self, line):
        self.describe(line.strip(), [("Signature", "signature")])

    def cell_bash(self, line, body, program="/bin/bash"):
        # As an argument, so that the commands' input is empty; one that is too long for that comes as input.
        long = len(body.encode("utf-8", "replace")) > 100_000
        self.script([program, "-s"] if long else [program, "-c", body], body if long else None, line)

    def cell_sh(self, line, body):
        self.cell_bash(line, body, "/bin/sh")

    def cell_script(self, line, body):
        program = [word for word in words(line) if not word.startswith("--")]
        if not program:
            raise UsageError("%%script needs a program")
        if program[0] in ("bash", "sh") and len(program) == 1:
            return self.cell_bash(line, body, "/bin/" + program[0])
        self.script(program, body, line)

    def cell_python(self, line, body):
        self.script([sys.executable or "python3", "-"], body, line)

    cell_python3 = cell_python

    def script(self, program, body, line):
        code, _ = run_program(program, given=body)
        self.kernel.names["_exit_code"] = code
        if code != 0 and "--no-raise-error" not in line:
            import subprocess

            raise subprocess.CalledProcessError(code, program[0])

    def cell_system(self, line, body):
        return self.kernel.shell.getoutput(body)

    cell_sx = cell_system

    def cell_writefile(self, line, body):
        arguments = words(expand(line))
        append = any(word in ("-a", "--append") for word in arguments)
        names = [word for word in arguments if not word.startswith("-")]
        if len(names) != 1:
            raise UsageError("%%writefile needs a name: %%writefile [-a] NAME")
        path = os.path.expanduser(names[0])
        was_there = os.path.exists(path)
        with _io.open(path, "a" if append else "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(body if body.endswith("\n") or not body else body + "\n")
        say(f"{'Appending to' if append else 'Overwriting' if was_there else 'Writing'} {names[0]}")

    cell_file = cell_writefile

    def cell_capture(self, line, body):
        options = words(line)
        names = [word for word in options if not word.startswith("-")]
        captured = Captured()
        before = sys.stdout, sys.stderr, self.kernel.captured
        if "--no-stdout" not in options:
            sys.stdout = captured.out
        if "--no-stderr" not in options:
            sys.stderr = captured.err
        if "--no-display" not in options:
            self.kernel.captured = captured.outputs
        try:
            value = self.kernel.execute_body(body)
            if value is not None:
                self.kernel.give_result(value)
            self.kernel.figures.show_all()
        finally:
            sys.stdout, sys.stderr, self.kernel.captured = before
            if names:
                self.kernel.names[names[0]] = captured

    def show_text(mime):
        def run(self, line, body):
            display({mime: body}, raw=True)

        return run

    cell_html, cell_HTML, cell_markdown = show_text("text/html"), show_text("text/html"), show_text("text/markdown")
    cell_svg, cell_SVG, cell_latex = show_text("image/svg+xml"), show_text("image/svg+xml"), show_text("text/latex")
    cell_javascript = cell_js = show_text("application/javascript")
    del show_text

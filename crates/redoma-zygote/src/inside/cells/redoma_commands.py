"""Commands: programs that lines with `!` and magics run, and what answers for `pip`."""

from redoma_guarded import BUILTINS as __builtins__

import _signal
import os
import re
import sys

from redoma_guarded import live
from redoma_outputs import say, write


class UsageError(Exception):
    """A magic that there is not, or that was used in a way that there is not."""


UsageError.__module__ = "builtins"


class Lines(list):
    """A command's output, by lines."""

    @property
    def l(self):  # noqa: E743
        return list(self)

    @property
    def n(self):
        return "\n".join(self)

    @property
    def s(self):
        return " ".join(self)

    nlstr, spstr = n, s

    def grep(self, pattern, prune=False):
        return Lines(line for line in self if bool(re.search(pattern, line)) != prune)

    def fields(self, *numbers):
        rows = [line.split() for line in self]
        if not numbers:
            return rows
        return Lines(" ".join(row[number] for number in numbers if number < len(row)) for row in rows)


def words(line):
    import shlex

    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{error}: {line}") from None


EXPANSION = re.compile(r"\$\{[^}]*\}|\$\$|\$([A-Za-z_]\w*)|\{\{|\}\}|\{([^{}]+)\}")
FORMAT = re.compile(r"([^'\"].*?)(?:!([rsa]))?:([0-9.,<>^+]*[bdeEfFgGnosxX%]?)", re.S)


def expand(command, *scopes):
    """With the values of `$name` and `{expression}`; as it is where that is none."""

    def evaluate(text):
        code = compile(text.strip(), "<command>", "eval", 0, True)
        return eval(code, live.kernel.names, scopes[0] if scopes else None)

    def replace(found):
        text = found[0]
        try:
            if found[1]:
                for scope in (*scopes, live.kernel.names):
                    if found[1] in scope:
                        return str(scope[found[1]])
            elif text == "$$":
                return "$"
            elif text in ("{{", "}}"):
                return text[0]
            elif found[2]:
                try:
                    return str(evaluate(found[2]))
                except SyntaxError:
                    formatted = FORMAT.fullmatch(found[2])
                    if formatted is not None:
                        return format(evaluate(formatted[1]), formatted[3])
        except Exception:
            pass
        return text

    if "$" not in command and "{" not in command:
        return command
    return EXPANSION.sub(replace, command)


def shell_program():
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


def run_program(arguments, collect=False, given=None):
    """Runs a program: its exit code, and its output if that is to be collected. Otherwise that goes to the cell's."""
    import codecs
    import subprocess

    live.kernel.flush()
    own = collect or sys.stdout is not live.kernel.upkeep.streams["stdout"]
    try:
        folder = os.getcwd()
    except OSError:
        folder = live.kernel.workspace
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE if own else None,
        stderr=subprocess.STDOUT if own and sys.stderr is not live.kernel.upkeep.streams["stderr"] else None,
        cwd=folder,
        start_new_session=True,
    )
    decoder, pieces = codecs.getincrementaldecoder("utf-8")("replace"), []
    try:
        if given is not None:
            try:
                process.stdin.write(given.encode("utf-8", "surrogateescape"))
                process.stdin.close()
            except BrokenPipeError:
                pass
        piece = b"start"
        while own and piece:
            piece = os.read(process.stdout.fileno(), 1 << 16)
            text = decoder.decode(piece, not piece)
            if collect:
                pieces.append(text)
            else:
                write(sys.stdout, text)
        code = process.wait()
    except KeyboardInterrupt:
        end_program(process)
        # Where this program was waiting then is of no interest.
        raise KeyboardInterrupt from None
    finally:
        if process.stdout is not None:
            process.stdout.close()
    return code, "".join(pieces)


def end_program(process):
    """With all that it has started."""
    import subprocess

    for signal in (_signal.SIGINT, _signal.SIGKILL):
        try:
            os.killpg(process.pid, signal)
            process.wait(1)
        except (OSError, subprocess.TimeoutExpired):
            pass
        if process.returncode is not None:
            return


PIP_COMMAND = re.compile(r"\s*(?:sudo\s+)?(?:\S*python[\d.]*\s+-m\s+)?(?:uv\s+)?pip[\d.]*\s+"
                         r"(install\b(?:\"[^\"]*\"|'[^']*'|[^|&;>'\"])*)(.*)", re.S)  # fmt: skip
# Options that are followed by a value.
PIP_VALUES = frozenset(
    "-r --requirement -c --constraint -i --index-url --extra-index-url -f --find-links -t --target".split()
)


def packages(line):
    """Answers `pip`, which has no network here. Whether all that was asked for is there."""
    from importlib import metadata

    command, *rest = words(line) or ["help"]
    if command in ("list", "freeze"):
        found = {str(package.metadata["Name"]): package.version for package in metadata.distributions()}
        for name in sorted(found, key=str.lower):
            say(f"{name}=={found[name]}")
        return True
    if command not in ("install", "show", "download"):
        say(f"pip {command} does nothing here: packages can't be changed, and the sandbox has no network")
        return False
    fine, is_value = True, False
    for word in rest:
        if is_value:
            is_value = False
            continue
        if word.startswith("-"):
            is_value = word in PIP_VALUES
            if word in ("-r", "--requirement"):
                fine = False
                say("a list of requirements can't be installed: the sandbox has no network")
            continue
        name = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", word)
        try:
            name = name[0] if name is not None and "/" not in word else word
            say(f"{name} is already there ({metadata.version(name)})")
        except (metadata.PackageNotFoundError, ValueError):
            fine = False
            say(f"{name} can't be installed: the sandbox has no network. `%pip list` says what there is")
    return fine

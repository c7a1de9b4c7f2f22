"""Bash cells: each is a new bash, and what one leaves behind the next one finds.

Whatever happens to a cell's bash, what came before is safe: it is text here. Before a cell it is read by the new bash,
and at the cell's end, in a trap on EXIT, bash writes down what it has then: folder, variables, functions, aliases,
options, umask and traps. That becomes the new text only if it is complete and bash ended by itself.

The cell's code is a file in memory that bash sources under the name `cell`, so messages say `cell: line 2: …`, and
`${BASH_SOURCE[0]}` is `$0` as in a script.

A trap on EXIT that the cell sets runs at the cell's end, as it would at a script's end, and is gone afterwards.
Not handed over: open files, positional parameters, jobs, traps on DEBUG and RETURN, and functions called `trap` or
`builtin`.
"""

import fcntl
import os
import re
import signal
import sys
import time

MOST_STATE = 1 << 20
# With what is left out of it.
MOST_REPORT = 2 << 20
# Numbers that scripts do not use for files of their own: what was, the code, and where to write what is.
BEFORE, CODE, AFTER = 197, 198, 199
# Seconds that an interrupted cell has to end.
PATIENCE = 1.0

# What bash sets itself. (And all that begins with BASH_, but for what people set.)
NOT_KEPT = frozenset(
    b"BASH BASHOPTS BASHPID COMP_WORDBREAKS DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD LINENO "
    b"OLDPWD OPTARG OPTIND PIPESTATUS POSIXLY_CORRECT PPID PWD RANDOM SECONDS SHELLOPTS SHLVL SRANDOM UID _".split()
)
KEPT_OF_BASH = frozenset([b"BASH_ENV", b"BASH_COMPAT", b"BASH_LOADABLES_PATH"])
# Of `set -o`: on from the start, and those that would leave no cell after them alone.
ON_FROM_START = (b"braceexpand", b"hashall", b"interactive-comments")
NEVER_AGAIN = (b"noexec", b"onecmd", b"privileged", b"restricted", b"verbose")

# The part of bash's. It meets anything that a script may have done to its shell: options, functions with the names of
# builtins, another IFS. So it says `builtin` everywhere, quotes everything, and is parsed before there are any aliases.
OWN_FUNCTIONS = r"""
__redoma_save() {
    # Now `unset` is found before a function of that name, and then `builtin` is, too.
    POSIXLY_CORRECT=1
    unset -f builtin
    builtin set +euxvETf +o posix
    if [[ -v __redoma_started && $BASH_SUBSHELL == 0 ]]; then
        builtin trap '' XFSZ
        builtin ulimit -S -f MOST_KIB
        {
            builtin printf '%s\0' BEGIN "$__redoma_was"
            builtin pwd || builtin printf '%s\n' "$PWD"
            builtin printf '\0'
            builtin umask -p && builtin printf '\0'
            NAMES; builtin printf '\0'
            builtin alias -p && builtin printf '\0'
            builtin trap -p && builtin printf '\0'
            builtin declare -F && builtin printf '\0'
            for __redoma_name in __redoma_go __redoma_layers __redoma_save trap ''; do
                builtin declare -f $__redoma_name
                builtin printf '\0'
            done
            if (( ${#FUNCNAME[@]} > 2 )); then
                __redoma_layers
            else
                builtin declare -p
            fi && builtin printf '\0END\0'
        } >&AFTER
        builtin ulimit -S -f hard
    fi
    builtin return "${__redoma_was%% *}"
}
# Somebody left from within a function, and its variables hide those of the same name outside. Those that are outside
# get a mark, then all that is seen is removed, layer by layer: here, where nobody misses it.
__redoma_layers() (
    builtin mapfile -t __redoma_names < <(builtin compgen -v)
    builtin declare -gt "${__redoma_names[@]}"
    builtin declare -p
    for (( __redoma_layer = ${#FUNCNAME[@]} < 12 ? ${#FUNCNAME[@]} : 12; __redoma_layer > 2; __redoma_layer-- )); do
        for __redoma_name in "${__redoma_names[@]}"; do
            [[ $__redoma_name == __redoma_* ]] || builtin unset -v "$__redoma_name"
        done
        builtin declare -p
    done
)
# The cell's trap on EXIT gets its place between two of ours: the second is not reached if it says `exit`.
trap() {
    { builtin local - __redoma_text __redoma_status __redoma_word; builtin set +eux; } 2>/dev/null
    if [[ $BASH_SUBSHELL != 0 ]]; then
        builtin trap "$@"
        builtin return
    fi
    if [[ -v __redoma_exit ]]; then
        builtin trap -- "$__redoma_exit" EXIT
    else
        builtin trap - EXIT
    fi
    builtin trap "$@"
    __redoma_status=$?
    # Those that a function does not see come back at its end if there is none.
    for __redoma_word in "$@"; do
        if [[ $__redoma_word == @(ERR|DEBUG|RETURN) && -z $(builtin trap -p "$__redoma_word") ]]; then
            builtin trap '' "$__redoma_word"
        fi
    done
    __redoma_text=$(builtin trap -p EXIT)
    builtin unset -v __redoma_exit
    if [[ -n $__redoma_text ]]; then
        builtin eval "__redoma_text=($__redoma_text)"
        __redoma_exit=${__redoma_text[2]}
        __redoma_text="$__redoma_last"$'\n'"$__redoma_exit"$'\n'"$__redoma_last"
    else
        __redoma_text=$__redoma_last
    fi
    builtin trap -- "$__redoma_text" EXIT
    builtin return "$__redoma_status"
}
# In a function the trap on ERR is not seen, and here it has nothing to say.
__redoma_last='{
    __redoma_was=${__redoma_was-$? $SHELLOPTS $BASHOPTS}
    \builtin trap -p ERR >&AFTER
    \builtin trap - ERR >&AFTER
    \__redoma_save
} 2>/dev/null'
builtin trap -- "$__redoma_last" EXIT
"""


class Shell:
    """The shell of a session. It costs nothing before its first cell."""

    def __init__(self, workspace="/mnt/data", program="/bin/bash"):
        self.workspace = workspace
        self.program = program
        # What the last cell left: commands that bring it back, in the order in which they are needed.
        self.state = {}
        self.folder = None
        # All that `shopt` knows, which is asked for once.
        self.shell_option_names = []
        # Of the environment, as it was for the last cell.
        self.environment = None
        # A folder with nothing but the name `cell` in it.
        self.own_folder = None
        # Of the bash that runs now.
        self.pid = None

    def run(self, code):
        """Runs a cell. Its output is where this process's is."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        notes = []
        blocking = [descriptor for descriptor in (1, 2) if is_blocking(descriptor)]
        files = []
        try:
            exit_code, report = self.run_bash(code, files, notes)
        except OSError as error:
            notes.append(f"Bash could not be started: {error}.")
            exit_code, report = 126, None
        finally:
            for file in files:
                os.close(file)
            # Programs that a signal ended leave them as they wanted them.
            for descriptor in blocking:
                os.set_blocking(descriptor, True)
        if report is not None:
            self.take(report, notes)
        return {"status": "ok" if exit_code == 0 else "error", "exit_code": exit_code, "notes": notes}

    def run_bash(self, code, files, notes):
        """The exit code, and what bash handed over if that is to be believed."""
        if isinstance(code, str):
            code = code.encode("utf-8", "replace")
        code = code.replace(b"\r\n", b"\n").replace(b"\0", b"")
        # On the cell's own first line, so that the numbers of all lines are right.
        files.append(memory_file(b"\\__redoma_go; " + code + b"\n"))
        files.append(memory_file(self.before(notes)))
        files.append(memory_file(b""))
        source = self.place()
        actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
        # None of them may be where another one is to go.
        for index, number in enumerate((CODE, BEFORE, AFTER)):
            files[index] = moved_away(files[index])
            actions.append((os.POSIX_SPAWN_DUP2, files[index], number))
        arguments = [self.program, "--norc", "--noprofile", "+O", "sourcepath", "-c", source, "cell"]
        interrupted = False
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            try:
                self.pid = os.posix_spawn(
                    self.program,
                    arguments,
                    self.spawn_environment(),
                    file_actions=actions,
                    setpgroup=0,
                    setsigmask=set(old_mask) - {signal.SIGINT},
                    setsigdef=[signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ],
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
            status = wait(self.pid)
        except KeyboardInterrupt:
            interrupted = True
            status = None if self.pid is None else end(self.pid)
        finally:
            self.pid = None
        if interrupted:
            notes.append("The cell was interrupted. Its changes to variables are lost, those from before it are kept.")
            return 130, None
        report = read_report(files[2])
        if status is not None and status < 0:
            notes.append(
                f"Bash was ended by {signal_name(-status)}. "
                "The cell's changes to variables are lost, those from before it are kept."
            )
            return 128 - status, None
        if status is None:
            # Somebody else has waited for it, or nobody may.
            status = report["status"] if report else 1
        if report is None and not self.never_began(files[2], status):
            notes.append(lost_note(os.fstat(files[2]).st_size))
        return status, report

    @staticmethod
    def never_began(file, status):
        """The first line was no line of bash: nothing has happened, so nothing has changed."""
        return status == 2 and os.fstat(file).st_size == 0

    def place(self):
        """The command that runs the cell. Messages have the name in them by which it is sourced."""
        first = f"\\builtin . /dev/fd/{BEFORE} 2>/dev/null;"
        try:
            if self.own_folder is None or not os.path.lexists(f"{self.own_folder}/cell"):
                import tempfile

                folder = tempfile.mkdtemp(prefix=".redoma-")
                os.symlink(f"/dev/fd/{CODE}", f"{folder}/cell")
                self.own_folder = folder
        except OSError:
            # No room for it. Whoever wants to make some can.
            return f"{first} \\builtin . /dev/fd/{CODE}"
        return f"{first} \\builtin cd -- {quote(self.own_folder)} && \\builtin . cell"

    def spawn_environment(self):
        """What bash starts with: all of it the first time, later what was exported is in the state."""
        if self.state:
            return {}
        hidden = (b"BASH_ENV", b"ENV", b"SHELLOPTS", b"BASHOPTS", b"POSIXLY_CORRECT")
        return {name: value for name, value in os.environb.items() if name not in hidden}

    def before(self, notes):
        """What the new bash reads first."""
        state = self.state
        folder = self.folder or self.workspace
        if self.folder is not None and not os.path.isdir(folder):
            notes.append(f"The folder {os.fsdecode(folder)} is gone: the cell started in {self.workspace}.")
            folder = self.workspace
        workspace = os.fsencode(quote(self.workspace))
        own = OWN_FUNCTIONS.replace("AFTER", str(AFTER)).replace("MOST_KIB", str(MOST_REPORT >> 10))
        own = own.replace("NAMES", ":" if self.shell_option_names else "builtin shopt").encode()
        return b"\n".join(
            [
                b"exec %d<&-" % BEFORE,
                own,
                # Functions may have such patterns in them. (The first cell's shell is as any other, but knows aliases.)
                b"builtin shopt -s extglob" if state else b"builtin shopt -s expand_aliases",
                state.get("variables", b""),
                self.changed_environment(),
                state.get("umask", b""),
                # If bash can't read what it wrote itself, that is one thing less, not all.
                b"builtin eval " + quote(state.get("functions", b"")),
                state.get("aliases", b""),
                state.get("traps", b""),
                b"__redoma_go() {",
                b"builtin cd -- %s || builtin cd -- %s || builtin cd /" % (quote(os.fsencode(folder)), workspace),
                state.get("previous_folder", b"builtin unset -v OLDPWD"),
                b"builtin declare -F command > /dev/null || command exec %d<&-" % CODE,
                b"builtin shopt %s sourcepath" % state.get("sourcepath", b"-s"),
                state.get("error_trap", b""),
                b"__redoma_started=1",
                state.get("options", b""),
                b"}",
                # Last, as it changes how all that comes after it is read.
                state.get("shell_options", b""),
                b"",
            ]
        )

    def changed_environment(self):
        """What Python has changed in its environment since the last cell: who sets a variable there means this, too."""
        now = dict(os.environb)
        before, self.environment = self.environment, now
        if before is None:
            return b""
        lines = []
        for name in before.keys() | now.keys():
            if before.get(name) != now.get(name) and is_name(name) and not is_bash_own(name):
                if name in now:
                    lines.append(b"builtin export %s=%s" % (name, quote(now[name])))
                else:
                    lines.append(b"builtin unset -v " + name)
        return b"\n".join(lines)

    def take(self, report, notes):
        found = list(records(report["variables"]))
        if not self.shell_option_names:
            self.shell_option_names = [line.split()[0] for line in report["shell_options"].splitlines() if line]
        state = {
            "variables": variables(found, self.state.get("variables", b"")),
            "functions": functions(report),
            "aliases": report["aliases"],
            "traps": traps(report["traps"]),
            # Not before the cell is sourced: it would see a cell that fails as a command that does.
            "error_trap": traps(report["error_trap"]),
            "umask": b"builtin " + report["umask"].strip(),
            "shell_options": shell_options(self.shell_option_names, report["shell_options_on"]),
            # Only when the cell is found, which nobody is to look for elsewhere.
            "sourcepath": b"-s" if b"sourcepath" in report["shell_options_on"] else b"-u",
            "options": options(report["options_on"]),
            "previous_folder": previous_folder(found),
        }
        size = sum(map(len, state.values()))
        if size > MOST_STATE:
            notes.append(
                f"The shell's variables and functions are too large to keep ({size >> 10} KiB, at most "
                f"{MOST_STATE >> 10} KiB): those from before the cell are kept."
            )
            return
        folder = os.fsdecode(report["folder"].removesuffix(b"\n"))
        self.state = state
        self.folder = folder


def lost_note(written):
    if written > MOST_REPORT // 2:
        return "The shell's variables are too large to keep: those from before the cell are kept."
    return (
        "The shell did not hand over its variables: those from before the cell are kept. "
        "(A cell that uses `exec`, closes all files or sets a trap on EXIT in POSIX mode keeps it from doing so.)"
    )


def read_report(file):
    """The last complete report in what bash wrote down."""
    size = os.fstat(file).st_size
    data = os.pread(file, min(size, MOST_REPORT), 0)
    begin = data.rfind(b"BEGIN\0")
    error_trap = data[: data.find(b"BEGIN\0")]
    if data.endswith(b"\0END\0"):
        data = data[begin:]
    elif data.count(b"\0END\0"):
        # The second one, after the cell's own trap, is not complete.
        data = data[: data.rfind(b"\0END\0") + 5]
        data = data[data.rfind(b"BEGIN\0") :]
    parts = data.split(b"\0")
    if begin < 0 or len(parts) != 16 or parts[-2] != b"END":
        return None
    status, options_on, shell_options_on = parts[1].split(b" ")
    report = {"status": int(status), "options_on": options_on.split(b":")}
    report["shell_options_on"] = shell_options_on.split(b":")
    report["own_functions"] = parts[8:12]
    names = ("folder", "umask", "shell_options", "aliases", "traps", "function_flags")
    report.update(zip(names, parts[2:8]))
    report["error_trap"] = error_trap
    report.update(functions=parts[12], variables=parts[13])
    return report


def records(text):
    """What `declare -p` printed: flags, name and value (or nothing) of each variable."""
    value = rb"""(?:"[^"\\]*(?:\\.[^"\\]*)*"|\$'[^'\\]*(?:\\.[^'\\]*)*'|'[^']*'|\\.|[^"'\\\n])*"""
    pattern = re.compile(rb"declare -(\S+) ([A-Za-z_][A-Za-z0-9_]*)(?:=(" + value + rb"))?\n", re.DOTALL)
    position = 0
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            # Not what was expected: on with the next line that is.
            position = text.find(b"\ndeclare -", position) + 1
            if position == 0:
                return
            continue
        yield match.groups()
        position = match.end()


def variables(found, before):
    """Commands that bring the variables back."""
    layered = any(name == b"__redoma_layer" for _, name, _ in found)
    lines, seen = [], set()
    for flags, name, value in found:
        if is_bash_own(name) or name.startswith(b"__redoma_") or name in seen:
            continue
        if layered:
            # Without the mark it is a function's own. (References can't be marked.)
            if b"t" not in flags and not (b"n" in flags and b" %s=" % name in before):
                continue
            flags = flags.replace(b"t", b"") or b"-"
        seen.add(name)
        lines.append(b"declare -%s %s" % (flags, name) + (b"" if value is None else b"=" + value))
    return b"\n".join(lines)


def previous_folder(found):
    for _, name, value in found:
        if name == b"OLDPWD" and value is not None:
            return b"OLDPWD=" + value
    return b"builtin unset -v OLDPWD"


def functions(report):
    text = report["functions"]
    for own in report["own_functions"]:
        text = text.replace(own, b"", 1)
    lines = [text]
    for line in report["function_flags"].splitlines():
        words = line.split(b" ", 2)
        if len(words) == 3 and words[1] != b"-f":
            lines.append(b"builtin declare %s %s" % (words[1], quote(words[2])))
    return b"\n".join(lines)


def traps(text):
    """Commands that set the traps again: of each that is one of a signal or of ERR."""
    found = re.findall(rb"^trap -- (?:'[^']*'|\\')* \S+\n", text, re.MULTILINE)
    gone = (b"EXIT", b"DEBUG", b"RETURN", b"SIGXFSZ")
    return b"".join(b"builtin " + line for line in found if line.split()[-1] not in gone)


def shell_options(names, on):
    """Of `shopt`, in two commands."""
    # Two nobody can set, one has its own place, and the others are set by a variable.
    others = (b"login_shell", b"restricted_shell", b"sourcepath")
    names = [name for name in names if name not in others and not name.startswith(b"compat")]
    off = b" ".join(name for name in names if name not in on)
    return b"builtin shopt -u %s; builtin shopt -s %s" % (off, b" ".join(name for name in names if name in on))


def options(on):
    """Of `set -o`. What shows each command comes last, so that it shows none of ours."""
    words = [b"+o " + name for name in ON_FROM_START if name not in on]
    on = [name for name in on if name and name not in NEVER_AGAIN + ON_FROM_START]
    words += [b"-o " + name for name in sorted(on, key=lambda name: name == b"xtrace")]
    return b"builtin set " + b" ".join(words) if words else b""


def is_bash_own(name):
    return name in NOT_KEPT or (name.startswith(b"BASH_") and name not in KEPT_OF_BASH)


def is_name(name):
    return name.replace(b"_", b"a").isalnum() and name.isascii() and not name[:1].isdigit()


def quote(text):
    if isinstance(text, bytes):
        return b"'" + text.replace(b"'", b"'\\''") + b"'"
    return "'" + text.replace("'", "'\\''") + "'"


def memory_file(content):
    """A file that takes no room on any disk: one that is full is no reason for a cell not to run."""
    try:
        file = os.memfd_create("cell")
    except (AttributeError, OSError):
        import tempfile

        file, path = tempfile.mkstemp()
        os.unlink(path)
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file


def moved_away(file):
    """The same file under a number that is none of those that the cell gets."""
    if file not in (BEFORE, CODE, AFTER):
        return file

    moved = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, AFTER + 1)
    os.close(file)
    return moved


def is_blocking(descriptor):
    try:
        return os.get_blocking(descriptor)
    except OSError:
        return False


def wait(pid):
    """The exit code, less than 0 for a signal; nothing if nobody can know it."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return None


def end(pid):
    """Interrupts a cell and all that it has started, and ends what does not care."""
    try:
        os.killpg(pid, signal.SIGINT)
        deadline = time.monotonic() + PATIENCE
        once_more = deadline - PATIENCE / 2
        while (now := time.monotonic()) < deadline:
            if now >= once_more:
                # A bash with a trap on EXIT loses one that comes while it starts a program. Half of the time is for those
                # who tidy up.
                os.killpg(pid, signal.SIGINT)
                once_more = deadline
            if os.waitpid(pid, os.WNOHANG)[0] != 0:
                return None
            time.sleep(0.005)
    except KeyboardInterrupt:
        pass
    except (ProcessLookupError, ChildProcessError):
        return None
    try:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError, KeyboardInterrupt):
        pass
    return None


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

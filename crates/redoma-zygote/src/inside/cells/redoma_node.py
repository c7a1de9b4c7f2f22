"""JavaScript cells: one Node for the session, started with the first of them.

It prints to where this process does. What is more than text comes as reports on a pipe and is passed on in order: Node
has printed all that comes before a report, and waits with what comes after something that is displayed.

The process that has started Node need not be the one that uses it, since kernels are copied: nobody relies on waiting
for it, and its end is when its pipe ends. Each cell has a name of its own, so that nobody takes what a lost copy asked
for.
"""

import fcntl
import json
import os
import select
import signal
import sys
import time

# Seconds. For a cell to end that is interrupted, by the clock if Node has had as much CPU time,
PATIENCE = 1.0
# and in any case,
SLOW = 5.0
# for Node to start,
START = 30.0
# and to begin with a cell, before what else it does is interrupted, and then before it is ended.
BUSY, STUCK = 2.0, 10.0
GONE = "JavaScript's variables are gone: "


class Gone(Exception):
    """Node is not there any more, or nobody can speak with it."""


class Node:
    """JavaScript of a session. It costs nothing before its first cell. With `await_promises` a promise that is a cell's value is
    waited for."""

    def __init__(
        self,
        show,
        script_path,
        workspace="/mnt/data",
        programs=("/usr/bin/node", "/usr/local/bin/node"),
        memory_mb=None,
        await_promises=False,
    ):
        self.show = show
        self.script_path = script_path
        self.workspace = workspace
        self.programs = programs
        self.memory_mb = memory_mb
        self.await_promises = await_promises
        self.pid = None
        # Commands, reports and turns, with what they are, as others may close them and open something else.
        self.pipes = ()
        self.unread = b""
        # The last cell's name.
        self.token = None
        # Whether Node has started, and listens to signals.
        self.ready = False
        # Whether there were variables that are gone now.
        self.lost = False

    def run(self, code, number):
        """Runs a cell. Its output is where this process's is; the rest goes to `show`."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        answer = {"status": "error", "notes": []}
        blocking = [descriptor for descriptor in (1, 2) if is_blocking(descriptor)]
        try:
            self.run_in_node(code, number, answer)
        except KeyboardInterrupt:
            self.interrupted(answer)
        except Gone as error:
            self.gone(answer, str(error))
        except OSError as error:
            self.gone(answer, f"Node can't be reached ({error})")
        finally:
            for descriptor in blocking:
                os.set_blocking(descriptor, True)
        return answer

    def stop(self):
        """Ends Node, if it runs."""
        self.lost = self.lost or self.is_there()
        self.end()

    def tell(self, name, value):
        self.show({"error": {"name": name, "value": value, "traceback": f"{name}: {value}".splitlines()}})

    def run_in_node(self, code, number, answer):
        if self.is_there() and not self.is_alive():
            answer["notes"].append(GONE + "Node has ended since the last cell.")
            self.forget()
        if not self.is_there():
            if not self.start():
                answer["notes"].append("There is no Node to run JavaScript with.")
                self.tell("NotFoundError", "Node is not installed here")
                return
            if self.lost:
                answer["restarted"] = True
                self.lost = False
        self.token = token = os.urandom(8).hex()
        if not isinstance(code, str):
            code = code.decode("utf-8", "replace")
        command = {"token": token, "code": code, "number": number, "awaits": self.await_promises}
        # Between line ends, in case that somebody did not get to the end of one.
        unsent = memoryview(f"\n{json.dumps(command)}\n".encode())
        self.converse(token, unsent, answer)

    def converse(self, token, unsent, answer):
        """Sends the cell and passes on what comes back, until its end."""
        begun, nudged = time.monotonic(), False
        started = False
        while True:
            patience = None
            if not started:
                limit = START if not self.ready else STUCK if nudged else BUSY
                patience = begun + limit - time.monotonic()
                if patience <= 0 and not self.ready:
                    raise Gone("Node did not start")
                if patience <= 0 and nudged:
                    raise Gone("it was busy with something else and could not be interrupted")
                if patience <= 0:
                    self.kill(signal.SIGINT)
                    nudged, begun = True, time.monotonic()
                    continue
            unsent, reports = self.exchange(unsent, patience)
            for report in reports:
                mine = report.get("cell") == token
                if "display" in report:
                    try:
                        if mine:
                            self.show({"display": report["display"]})
                    finally:
                        os.write(self.pipes[2][0], b".")
                elif "ready" in report:
                    self.ready, begun = True, time.monotonic()
                elif mine and "started" in report:
                    started = True
                elif mine and "result" in report:
                    self.show({"result": report["result"]})
                elif mine and "error" in report:
                    self.show({"error": report["error"]})
                elif mine and "end" in report:
                    answer["status"] = report["end"]
                    return

    def exchange(self, unsent, patience):
        """Writes and reads what can be; what is still to be sent, and the reports that are complete."""
        poll = select.poll()
        self.check()
        commands, reports = self.pipes[0][0], self.pipes[1][0]
        poll.register(reports, select.POLLIN)
        if unsent:
            poll.register(commands, select.POLLOUT)
        for descriptor, event in poll.poll(None if patience is None else max(0, patience) * 1000):
            if descriptor == commands:
                try:
                    unsent = unsent[os.write(commands, unsent[:4096]) :]
                except BrokenPipeError:
                    raise Gone("Node has ended") from None
                except BlockingIOError:
                    pass
            else:
                piece = os.read(reports, 1 << 16)
                if not piece:
                    raise Gone(self.how_it_ended())
                self.unread += piece
        *lines, self.unread = self.unread.split(b"\n")
        found = []
        for line in lines:
            try:
                report = json.loads(line)
            except ValueError:
                continue
            if isinstance(report, dict):
                found.append(report)
        return unsent, found

    def start(self):
        program = next((program for program in self.programs if os.access(program, os.X_OK)), None)
        if program is None:
            return False

        opened = []
        try:
            for _ in range(3):
                # High, where no code looks for files of its own.
                for end in os.pipe():
                    opened.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 200))
                    os.close(end)
            commands, to_node, from_node, reports, turns, to_turns = opened
            inside = (commands, reports, turns)
            actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
            # Low for Node, which keeps its first few from the programs that it starts.
            actions += [(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(inside, 3)]
            arguments = [program, "--expose-internals"]
            if self.memory_mb:
                arguments.append(f"--max-old-space-size={int(self.memory_mb)}")
            arguments += [self.script_path, self.workspace]
            self.pid = os.posix_spawn(
                program,
                arguments,
                os.environ,
                file_actions=actions,
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ],
            )
        except BaseException:
            for end in opened:
                os.close(end)
            raise
        for end in inside:
            os.close(end)
        os.set_blocking(to_node, False)
        self.pipes = tuple((end, identity(end)) for end in (to_node, from_node, to_turns))
        self.unread, self.ready = b"", False
        return True

    def is_there(self):
        return bool(self.pipes)

    def is_alive(self):
        """Whether Node has neither ended nor been cut off."""
        try:
            self.check()
        except Gone:
            return False
        poll = select.poll()
        poll.register(self.pipes[1][0], 0)
        return not poll.poll(0)

    def check(self):
        """Whether the pipes are still the pipes."""
        if not self.pipes or any(identity(end) != what for end, what in self.pipes):
            raise Gone("its pipes were closed")

    def kill(self, number, group=False):
        try:
            (os.killpg if group else os.kill)(self.pid, number)
        except (ProcessLookupError, PermissionError, TypeError):
            pass

    def interrupted(self, answer):
        """Somebody does not want to wait any more."""
        answer["notes"].append("The cell was interrupted.")
        if not self.is_there():
            return
        # The command ends a cell that waits, the signal a script that runs.
        command = memoryview(f"\n{json.dumps({'interrupt': self.token})}\n".encode())
        unsent = command
        begun = next_signal = time.monotonic()
        used = self.cpu_seconds()
        # A Node that lacks CPU is not one that can't be interrupted.
        while (now := time.monotonic()) < begun + PATIENCE or (
            now < begun + SLOW and self.cpu_seconds() < used + PATIENCE
        ):
            try:
                # Node can lose a signal that comes as a script begins, so it gets more than one. From the third on, programs
                # that it waits for get it as well.
                if self.ready and now >= next_signal:
                    self.kill(signal.SIGINT, group=now >= begun + PATIENCE / 2)
                    next_signal = now + PATIENCE / 4
                    unsent = unsent or command
                unsent, reports = self.exchange(unsent, 0.05)
                for report in reports:
                    mine = report.get("cell") == self.token
                    if "display" in report:
                        os.write(self.pipes[2][0], b".")
                    elif "ready" in report:
                        self.ready = True
                    elif mine and "error" in report:
                        self.show({"error": report["error"]})
                    elif mine and "end" in report:
                        return self.settle()
            except KeyboardInterrupt:
                pass  # Whoever asks again wants the same.
            except (Gone, OSError) as error:
                return self.gone(answer, str(error))
        self.gone(answer, "it could not be interrupted, and was ended")

    def cpu_seconds(self):
        """CPU time of Node. None at all, if that can't be told."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return 0.0

    def settle(self):
        """Waits until Node has seen the interrupts that it got: one that comes late is not to end the next cell."""
        token = os.urandom(8).hex()
        unsent = memoryview(f"\n{json.dumps({'settle': token})}\n".encode())
        deadline = time.monotonic() + PATIENCE / 2
        while (left := deadline - time.monotonic()) > 0:
            try:
                unsent, reports = self.exchange(unsent, left)
            except KeyboardInterrupt:
                continue
            except (Gone, OSError):
                return
            for report in reports:
                if "display" in report:
                    os.write(self.pipes[2][0], b".")
                elif report.get("settled") == token:
                    return

    def gone(self, answer, why):
        self.end()
        self.lost = True
        answer["status"] = "error"
        answer["notes"].append(f"{GONE}{why}.")

    def how_it_ended(self):
        # It closes its pipes a moment before it can be waited for.
        for _ in range(100):
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except (ChildProcessError, TypeError):
                return "Node has ended"
            if pid != 0:
                code = os.waitstatus_to_exitcode(status)
                self.pid = None
                if code >= 0:
                    return f"Node has ended, with exit code {code}"
                try:
                    return f"Node was ended by {signal.Signals(-code).name}"
                except ValueError:
                    return f"Node was ended by signal {-code}"
            time.sleep(0.01)
        return "Node has ended"

    def end(self):
        """Ends Node for good."""
        if self.pid is not None:
            try:
                # Nobody else has its number while this process has not waited for it,
                if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                    self.kill(signal.SIGKILL)
                    os.waitpid(self.pid, 0)
            except ChildProcessError:
                # or while it has not closed its pipes.
                if self.is_alive():
                    self.kill(signal.SIGKILL)
            except KeyboardInterrupt:
                pass
        self.forget()

    def forget(self):
        for end, what in self.pipes:
            if identity(end) == what:
                os.close(end)
        self.lost = self.lost or bool(self.pipes)
        self.pipes, self.pid = (), None


def identity(descriptor):
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def is_blocking(descriptor):
    try:
        return os.get_blocking(descriptor)
    except OSError:
        return False

"""Tracebacks: as Python shows them, with nothing but the user's frames."""

from redoma_guarded import BUILTINS as __builtins__

from traceback import TracebackException

from redoma_guarded import OWN_FOLDER
from redoma_texts import cut

LONGEST_TRACEBACK = 256 << 10
MOST_TRACEBACK_ENTRIES = 200


def is_hidden(path):
    if path.startswith((OWN_FOLDER, "<frozen importlib", "<frozen runpy")):
        return True
    return path.endswith("/importlib/__init__.py")


def own_trace(trace):
    """From the first frame that is a cell's; without those of the kernel if there is none."""
    step = trace
    while step is not None:
        path = step.tb_frame.f_code.co_filename
        if path.startswith("<cell ") or path == "<magic>":
            return step
        step = step.tb_next
    while trace is not None and is_hidden(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def depth_of(trace):
    depth = 0
    while trace is not None:
        depth, trace = depth + 1, trace.tb_next
    return depth


def traceback_lines(error, changed):
    """As Python shows it, with nothing but the user's frames. `changed` has the lines of cells that were no Python:
    where in them something happened can't be said."""
    trace = own_trace(error.__traceback__)
    depth = depth_of(trace)
    summary = TracebackException(type(error), error, trace, limit=-2000 if depth > 10_000 else None, compact=True)
    queue, seen = [summary], set()
    while queue:
        part = queue.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        part.stack[:] = [frame for frame in part.stack if not is_hidden(frame.filename)]
        for frame in part.stack:
            if frame.lineno in changed.get(frame.filename, ()):
                frame.colno = frame.end_colno = None
        queue += (part.__cause__, part.__context__, *(part.exceptions or ()))
    entries = list(summary.format())
    if len(entries) > MOST_TRACEBACK_ENTRIES:
        gone = len(entries) - MOST_TRACEBACK_ENTRIES
        half = MOST_TRACEBACK_ENTRIES // 2
        entries[half:-half] = [f"  [... {gone} entries left out ...]\n"]
    lines, room = [], LONGEST_TRACEBACK
    for entry in entries:
        entry = cut(entry)
        room -= len(entry)
        if room < 0:
            lines.append("[... the rest was left out]")
            break
        lines += entry.removesuffix("\n").split("\n")
    return lines


def bare_lines(error, text):
    """For what can't be formatted in the usual way."""
    lines = ["Traceback (most recent call last):"]
    trace = own_trace(error.__traceback__)
    while trace is not None and len(lines) < 50:
        code = trace.tb_frame.f_code
        if not is_hidden(code.co_filename):
            lines.append(f'  File "{code.co_filename}", line {trace.tb_lineno}, in {code.co_name}')
        trace = trace.tb_next
    return [*lines, text]

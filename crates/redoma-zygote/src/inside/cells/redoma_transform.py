"""Makes Python of code that is none: magics, `!commands` and questions.

Such a line begins in a way that no line of Python does, and where a statement begins: not within a string, within
brackets, or after a backslash.
"""

from redoma_guarded import BUILTINS as __builtins__

import re

CELL_MAGIC = re.compile(r"(?:[ \t]*(?:#.*)?\n)*[ \t]*%%([A-Za-z_]\w*!?)[ \t]*(.*)(?:\n|$)")
SPECIAL = re.compile(r"[ \t]*(?:[!%?]|.*\?[ \t]*$|[^=!<>]+=[ \t]*[!%]|(?:pip3?|conda)[ \t]+[a-z])")
PIP = re.compile(r"([ \t]*)(pip3?|conda)[ \t]+([a-z]+\b.*)")
ASSIGNMENT = re.compile(r"([ \t]*)((?:[^=!<>#'\"(]|\['[^']*'\]|\[\"[^\"]*\"\])+?)[ \t]*=[ \t]*([!%])(?!=)(.*)", re.S)
MAGIC = re.compile(r"(%{1,2})([A-Za-z_]\w*)[ \t]*(.*)", re.S)
HELP = re.compile(r"(?:(\?{1,2})[ \t]*(%{0,2}[\w.\[\]'\"]+)|(%{0,2}[\w.\[\]'\"]+?)(\?{1,2}))[ \t]*")
TOKEN = re.compile(r"#|\"\"\"|'''|\"|'|[\[({]|[\])}]|\\$")


def string_end(line, position, quote):
    while True:
        end = line.find(quote, position)
        if end < 0:
            return end
        escape = line.find("\\", position, end)
        if escape < 0:
            return end + len(quote)
        position = escape + 2


def scan(line, quote, depth):
    """What a line of Python leaves open at its end: a string, brackets, or itself with a backslash."""
    position = 0
    while True:
        if quote:
            position = string_end(line, position, quote)
            if position < 0:
                backslashes = len(line) - len(line.rstrip("\\"))
                return (quote if len(quote) == 3 or backslashes % 2 else ""), depth, False
            quote = ""
        found = TOKEN.search(line, position)
        if found is None or found[0] == "#":
            return "", depth, False
        position = found.end()
        if found[0] == "\\":
            return "", depth, True
        if found[0] in "([{":
            depth += 1
        elif found[0] in ")]}":
            depth = max(0, depth - 1)
        else:
            quote = found[0]


def as_call(line):
    """The Python for a line that is none; None for any other."""
    found = ASSIGNMENT.fullmatch(line)
    if found is not None:
        indent, target, mark, rest = found.groups()
        if mark == "!":
            return f"{indent}{target} = get_ipython().getoutput({rest.strip()!r})"
        found = MAGIC.fullmatch("%" + rest)
        return found and f"{indent}{target} = get_ipython().run_line_magic({found[2]!r}, {found[3].rstrip()!r})"
    text = line.lstrip(" \t")
    indent = line[: len(line) - len(text)]
    found = HELP.fullmatch(text)
    if found is not None:
        name, marks = (found[2], found[1]) if found[1] else (found[3], found[4])
        return f"{indent}get_ipython().run_line_magic({'pinfo' if len(marks) == 1 else 'pinfo2'!r}, {name!r})"
    if text.startswith("!!"):
        return f"{indent}get_ipython().getoutput({text[2:].strip()!r})"
    if text.startswith("!"):
        return f"{indent}get_ipython().system({text[1:].strip()!r})"
    found = MAGIC.fullmatch(text)
    if found is not None:
        name = found[2] if found[1] == "%" else "%" + found[2]
        return f"{indent}get_ipython().run_line_magic({name!r}, {found[3].rstrip()!r})"
    found = PIP.fullmatch(line)
    if found is not None:
        return f"{indent}get_ipython().run_line_magic({found[2]!r}, {found[3]!r})"
    return None


def without_indent(lines):
    """Code that was cut out of an indented place."""
    first = next((line for line in lines if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip(" \t"))]
    return [line.removeprefix(indent) for line in lines] if indent else lines


def transform(source):
    """The code as Python with the same lines, and the numbers of the lines that are not as they were."""
    lines = without_indent(source.split("\n"))
    result, changed = [], set()
    quote, depth, joined = "", 0, False
    while len(result) < len(lines):
        line = lines[len(result)]
        if not quote and not depth and not joined and SPECIAL.match(line):
            end = len(result) + 1
            while line.endswith("\\") and end < len(lines):
                line = line[:-1] + lines[end]
                end += 1
            call = as_call(line)
            if call is not None:
                changed.update(range(len(result) + 1, end + 1))
                result += [call] + [""] * (end - len(result) - 1)
                continue
            line = lines[len(result)]
        quote, depth, joined = scan(line, quote, depth)
        result.append(line)
    return "\n".join(result), changed

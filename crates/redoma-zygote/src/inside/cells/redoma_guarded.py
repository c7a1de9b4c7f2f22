"""What all parts of a session's kernel share: builtins of their own, and what no cell can change.

A function keeps the builtins that its module names when the function is made. So every part begins by taking those here
as its `__builtins__`, before anything else is made. The parts import one another at their top only: once the zygote has
loaded them, they can't be imported any more.
"""

import builtins

BUILTINS = __builtins__ = dict(vars(builtins))

import _io

# Nobody wants to see frames of these files: the parts of the kernel, and what else the zygote has beside them.
OWN_FOLDER = (lambda: None).__code__.co_filename.rpartition("/")[0] + "/"

type_name = type.__dict__["__name__"].__get__
type_bases = type.__dict__["__mro__"].__get__
type_dict = type.__dict__["__dict__"].__get__


class Live:
    """The kernel of this process, for the functions that cells call."""

    kernel = None


live = Live()


def read_file(path):
    with _io.open(path, "rb") as file:
        return file.read()


def nothing(*arguments, **more):
    return None

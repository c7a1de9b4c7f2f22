"""What cells find among the builtins that Python does not have there, or has in another way."""

from redoma_guarded import BUILTINS as __builtins__

import builtins
import sys

from redoma_display import display
from redoma_guarded import live
from redoma_ipython import get_ipython

NO_INPUT = "input() can't ask anybody here: put the value into the code"


class Exit:
    """`exit` and `quit`. Those that Python has close the input as well."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"{self.name}() ends the cell, not the session"

    def __call__(self, code=None):
        raise SystemExit(code)


def no_password(prompt="Password: ", stream=None, **more):
    raise EOFError(NO_INPUT.replace("input()", "getpass()"))


def give_builtins():
    original = builtins.input

    def input(prompt="", /):
        # Unless the cell has put something there to be read.
        if sys.stdin is not None and sys.stdin is not live.kernel.upkeep.stdin:
            return original(prompt)
        raise EOFError(NO_INPUT)

    builtins.input = input
    builtins.display, builtins.get_ipython = display, get_ipython
    builtins.exit, builtins.quit = Exit("exit"), Exit("quit")

"""Which libraries a program may import: those that its profile names, what these need themselves, the standard library, and
the program's own files.

This is governance and no wall: whoever wants to get around it can, and is still in the sandbox. It holds for imports that
are written in a program, wherever the library was loaded before, and leaves alone those of libraries.
"""

import builtins
import difflib
import importlib
import os
import sys

WORKSPACE = "/mnt/data"
# Ours, for programs; and what notebooks ask for, which the kernel has an answer to.
ALWAYS = frozenset(("__main__", "IPython", "google", "ipywidgets", "redoma_plots", "mpl_toolkits", "pylab"))


class Guard:
    def __init__(self, allowed, profile):
        self.allowed = frozenset(allowed) | ALWAYS | sys.stdlib_module_names | frozenset(sys.builtin_module_names)
        self.named = sorted(allowed)
        self.profile = profile
        self.real_import, self.real_import_module = builtins.__import__, importlib.import_module
        # Where those lie whose imports are their own affair.
        folders = {os.path.dirname(os.__file__), os.path.join(sys.prefix, "lib"), "/.redoma"}
        self.folders = tuple(folder + "/" for folder in folders)
        self.frame = sys._getframe

    def put_up(self):
        builtins.__import__ = self.guarded_import
        importlib.import_module = self.guarded_import_module

    def guarded_import(self, name, globals=None, locals=None, fromlist=(), level=0):
        if level == 0 and type(name) is str:
            self.check(name, self.frame(1).f_globals if globals is None else globals)
        return self.real_import(name, globals, locals, fromlist, level)

    def guarded_import_module(self, name, package=None):
        if type(name) is str and not name.startswith("."):
            self.check(name, self.frame(1).f_globals)
        return self.real_import_module(name, package)

    def check(self, name, importer):
        first = name.partition(".")[0]
        if first in self.allowed or self.is_library(importer) or self.is_own(first):
            return
        raise ImportError(self.message(first), name=first)

    def is_library(self, importer):
        """Whether this is code of a library. Code that was made of text has no file: then whoever runs it counts."""
        file, frame = importer.get("__file__"), self.frame(2)
        while type(file) is not str and importer.get("__name__") != "__main__" and frame is not None:
            importer, frame = frame.f_globals, frame.f_back
            if importer is not globals():
                file = importer.get("__file__")
        return type(file) is str and file.startswith(self.folders)

    def is_own(self, first):
        """Whether it lies beside the program."""
        path = os.path.join(WORKSPACE, first)
        return os.path.isfile(path + ".py") or os.path.isdir(path)

    def message(self, first):
        near = difflib.get_close_matches(first, self.named, 1)
        instead = f" Did you mean `{near[0]}`?" if near else ""
        return (
            f"`{first}` is not among the libraries of the profile `{self.profile}`.{instead} "
            f"Allowed are the standard library and {', '.join(self.named)}."
        )


def guard(allowed, profile):
    Guard(allowed, profile).put_up()

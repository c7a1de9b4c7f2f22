"""Figures of matplotlib: as pictures, and shown when their cell ends if nobody has shown them before."""

from redoma_guarded import BUILTINS as __builtins__

import _io
import sys


def is_empty(figure):
    parts = "axes", "lines", "texts", "images", "patches", "artists", "legends", "subfigs"
    return not any(getattr(figure, part, None) for part in parts)


def draw(figure):
    """A figure of matplotlib as PNG. What has nothing in it is no picture."""
    if is_empty(figure):
        return None
    # Animations begin with the first time that a figure is drawn for the eye.
    if figure.canvas.callbacks.callbacks.get("draw_event"):
        figure.canvas.draw()
    picture = _io.BytesIO()
    figure.savefig(picture, format="png", dpi="figure", bbox_inches="tight")
    return picture.getvalue()


class Figures:
    """Those that are open, and those that the cell has shown."""

    def __init__(self, display):
        self.display = display
        self.shown = []

    def managers(self):
        """Where matplotlib has those that are open; None if nobody has loaded it."""
        helpers = sys.modules.get("matplotlib._pylab_helpers")
        return helpers and helpers.Gcf

    def any_open(self):
        managers = self.managers()
        return managers and managers.figs

    def show_all(self):
        managers = self.managers()
        if not managers:
            return
        problem = None
        for manager in list(managers.get_all_fig_managers()):
            try:
                self.show(manager)
            except Exception as error:
                problem = problem or error
        if problem is not None:
            raise problem

    def show(self, manager):
        figure = manager.canvas.figure
        shown = any(figure is other for other in self.shown)
        try:
            if not is_empty(figure) and (not shown or figure.stale):
                self.display(figure)
        finally:
            self.managers().destroy(manager)

    def remember(self, figure):
        """Not again at the end of the cell, unless it changes."""
        figure.stale = False
        self.shown.append(figure)

    def close(self, figure):
        managers = self.managers()
        if managers:
            managers.destroy_fig(figure)

    def forget(self):
        if self.shown:
            self.shown = []

"""Matplotlib's backend inside sandboxes, where nobody sees a window: `show` leaves each open figure as a picture in the
workspace, `plot-1.png`, `plot-2.png` and so on, and closes it."""

import io
import os
import sys

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

WORKSPACE = "/mnt/data"


class FigureManager(FigureManagerBase):
    @classmethod
    def pyplot_show(cls, *, block=None):
        for manager in Gcf.get_all_fig_managers():
            manager.show()

    def show(self):
        keep(draw(self.canvas.figure))
        Gcf.destroy(self)


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager


def draw(figure):
    # Animations begin with the first time that a figure is drawn for the eye.
    if figure.canvas.callbacks.callbacks.get("draw_event"):
        figure.canvas.draw()
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getbuffer()


def keep(picture):
    """Under the first number that is free. Where it can't be kept the program still goes on."""
    path, number = None, 0
    try:
        while path is None:
            number += 1
            try:
                file = open(f"{WORKSPACE}/plot-{number}.png", "xb")
                path = file.name
            except FileExistsError:
                pass
        with file:
            file.write(picture)
    except OSError as error:
        if path is not None:
            try:
                os.unlink(path)
            except OSError:
                pass
        print(f"plot-{number}.png could not be kept: {error.strerror}", file=sys.stderr)

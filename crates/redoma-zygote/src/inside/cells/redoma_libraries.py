"""Libraries that show something themselves, or ask somebody: seen to as soon as they are loaded."""

from redoma_guarded import BUILTINS as __builtins__

import sys

from redoma_given import no_password
from redoma_guarded import live, type_name


def adopt_pyplot(pyplot):
    def show(*arguments, **more):
        """Shows all open figures, and closes them."""
        live.kernel.figures.show_all()

    pyplot.show = show
    pylab = sys.modules.get("pylab") or sys.modules.get("matplotlib.pylab")
    if pylab is not None:
        pylab.show = show


def adopt_plots(plots):
    plots.FigureManager.show = lambda manager: live.kernel.figures.show(manager)
    plots.FigureManager.pyplot_show = classmethod(lambda kind, **more: live.kernel.figures.show_all())


def adopt_plotly(renderers):
    original = renderers.show

    def show(fig, renderer=None, validate=True, **more):
        for_eyes = {"browser", "notebook", "notebook_connected", "plotly_mimetype", "iframe", "jupyterlab", "colab"}
        if renderer is not None and not for_eyes & set(renderer.split("+")):
            return original(fig, renderer=renderer, validate=validate, **more)
        if isinstance(fig, dict):
            from plotly.graph_objects import Figure

            fig = Figure(fig, skip_invalid=not validate)
        live.kernel.display(fig)

    renderers.show = show
    package = sys.modules.get("plotly.io")
    if package is not None:
        package.show = show


def adopt_pandas(pandas):
    # Loaded where it saw no notebook, it fits tables into a terminal.
    if pandas.get_option("display.max_columns") == 0:
        pandas.set_option("display.max_columns", 20)


def adopt_getpass(getpass):
    getpass.getpass = no_password


ADOPT = {
    "matplotlib.pyplot": adopt_pyplot,
    "redoma_plots": adopt_plots,
    "plotly.io._renderers": adopt_plotly,
    "pandas": adopt_pandas,
    "getpass": adopt_getpass,
}


class Watch:
    """Sees to some modules as soon as somebody has loaded them."""

    def __init__(self, after):
        self.after = after

    def find_spec(self, name, path=None, target=None):
        if name not in self.after:
            return None
        for finder in list(sys.meta_path):
            if finder is self or getattr(finder, "find_spec", None) is None:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, self.after[name])
                return spec
        return None


class Loader:
    def __init__(self, loader, after):
        self.loader, self.after = loader, after

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        # So that nobody sees this one.
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        try:
            self.after(module)
        except Exception:
            pass


def watch_imports(stand_ins):
    """Sees to what is loaded, and to all that will be. `stand_ins` finds what nobody else does."""
    for name, adopt in ADOPT.items():
        module = sys.modules.get(name)
        if module is not None:
            try:
                adopt(module)
            except Exception:
                pass
    others = [finder for finder in sys.meta_path if type_name(type(finder)) not in ("Watch", "StandIns")]
    sys.meta_path[:] = [Watch(ADOPT), *others, stand_ins]

"""What `IPython.display` has for showing values: `display` and what belongs to it."""

from redoma_guarded import BUILTINS as __builtins__

import os

from redoma_guarded import live
from redoma_texts import exact


def display(*values, include=None, exclude=None, metadata=None, transient=None, display_id=None, raw=False, clear=False,
            update=False, **more):  # fmt: skip
    """Shows values in all their forms. With `display_id` they can be updated later."""
    if display_id is True:
        display_id = os.urandom(8).hex()
    elif display_id is not None:
        display_id = exact(str(display_id))
    elif update:
        raise TypeError("display_id is needed for an update")
    if clear:
        clear_output(wait=True)
    for value in values:
        live.kernel.display(value, (include, exclude), metadata, display_id, raw, update)
    return DisplayHandle(display_id) if display_id is not None else None


def update_display(value, *, display_id, **more):
    """Puts a value in the place of what was shown under this id."""
    display(value, display_id=display_id, update=True, **more)


def clear_output(wait=False):
    """Takes away what the cell has shown so far; with `wait` not before there is something new."""
    live.kernel.send({"clear": {"wait": bool(wait)}})


def publish_display_data(data, metadata=None, *, transient=None, update=False, **more):
    display(data, metadata=metadata, display_id=(transient or {}).get("display_id"), raw=True, update=update)


class DisplayHandle:
    """A place that something was shown in."""

    def __init__(self, display_id=None):
        self.display_id = display_id or os.urandom(8).hex()

    def __repr__(self):
        return f"<DisplayHandle display_id={self.display_id}>"

    def display(self, value, **more):
        display(value, display_id=self.display_id, **more)

    def update(self, value, **more):
        update_display(value, display_id=self.display_id, **more)


def show_as(kind, mime):
    """A function like `display_html`."""

    def function(*values, raw=False, metadata=None):
        for value in values:
            if raw:
                display({mime: value}, raw=True, metadata=metadata)
            else:
                display(value, include=["text/plain", mime], metadata=metadata)

    function.__name__ = function.__qualname__ = f"display_{kind}"
    return function

"""Values and their forms: what of a value can be shown, by type."""

from redoma_guarded import BUILTINS as __builtins__

import sys

from redoma_figures import draw
from redoma_guarded import type_bases, type_dict, type_name
from redoma_texts import LONGEST_TEXT, as_base64, cut, decode, encode, exact, pure, short

LONGEST_MARKUP = 1 << 20
LONGEST_IMAGE = 16 << 20
# Values larger than this are not kept in `Out`.
LARGE = 1 << 20
# What nothing but `repr` is asked about.
PLAIN_TYPES = frozenset((int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset, range))
METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
)
# Libraries whose values may be large although `sys.getsizeof` does not see it.
DATA_LIBRARIES = frozenset("numpy pandas polars pyarrow scipy xarray torch matplotlib PIL".split())


def has_method(kind, name):
    """Whether the class has it. Asked of the real class: an instance can answer anything, and do anything before."""
    return any(name in type_dict(base) for base in type_bases(kind))


def is_kind_of(value, module, name):
    """Whether it is of a class in a module that somebody has loaded."""
    module = sys.modules.get(module)
    kind = getattr(module, name, None) if module is not None else None
    return isinstance(kind, type) and issubclass(type(value), kind)


def is_large(value):
    try:
        if type(value) in PLAIN_TYPES:
            return sys.getsizeof(value) > LARGE
        if type(value).__module__.partition(".")[0] not in DATA_LIBRARIES:
            return False
        size = getattr(value, "nbytes", None)
        return not (value.size * 8 if size is None else size) <= LARGE
    except Exception:
        return True


def plain(value):
    kind = type(value)
    # Before it becomes far longer than anybody will read.
    if kind in PLAIN_TYPES and kind not in (int, float, complex, bool, range) and len(value) > LONGEST_TEXT:
        if kind in (dict, set, frozenset):
            from itertools import islice

            value = kind(islice(value.items() if kind is dict else value, LONGEST_TEXT))
        else:
            value = value[:LONGEST_TEXT]
    return cut(repr(value))


class Printer:
    """What a function that was registered for `text/plain` writes to."""

    def __init__(self):
        self.pieces = []

    def text(self, text):
        self.pieces.append(text)

    def breakable(self, separator=" "):
        self.pieces.append(separator)

    def pretty(self, value):
        self.pieces.append(repr(value))

    def break_(self):
        self.pieces.append("\n")


class Formatter:
    """Functions that libraries register for one form of their values."""

    def __init__(self):
        self.type_printers = {}
        self.enabled = True

    def for_type(self, kind, function=None):
        before = self.type_printers.get(kind)
        if function is not None:
            self.type_printers[kind] = function
        return before

    def for_type_by_name(self, module, name, function=None):
        kind = getattr(sys.modules.get(module), name, None)
        return self.for_type(kind, function) if kind is not None else None

    def pop(self, kind, default=None):
        return self.type_printers.pop(kind, default)

    def find(self, kind):
        if self.type_printers:
            for base in type_bases(kind):
                if base in self.type_printers:
                    return self.type_printers[base]
        return None


class Formatters(dict):
    def __missing__(self, mime):
        self[mime] = Formatter()
        return self[mime]


class Forms:
    """All forms of one value: `data` and `metadata`, by type."""

    def __init__(self, note, formatters):
        self.note = note
        self.formatters = formatters
        self.data = {}
        self.metadata = {}

    def add(self, mime, value, metadata=None):
        if value is None:
            return
        if type(value) is tuple and len(value) == 2:
            value, metadata = value
        try:
            value = self.clean(mime, value)
            if metadata:
                self.metadata[mime] = pure(metadata)
        except (TypeError, ValueError, RecursionError) as error:
            self.note(f"the value's {mime} could not be shown: {short(error)}")
            return
        if value is not None:
            self.data[mime] = value

    def clean(self, mime, value):
        """As it can be sent; nothing for what is too large."""
        if mime == "text/plain":
            return cut(value if isinstance(value, str) else repr(value))
        is_media = mime.startswith(("image/", "audio/", "video/", "application/vnd.")) and mime != "image/svg+xml"
        longest = LONGEST_IMAGE if is_media else LONGEST_MARKUP
        if mime.endswith("json"):
            if isinstance(value, str) and mime != "application/json":
                value = decode(value)
            text = encode(value)
            size, value = len(text), decode(exact(text)) if len(text) <= longest else None
        elif isinstance(value, (bytes, bytearray, memoryview)):
            size = len(value)
            if size > longest:
                value = None
            elif mime.startswith("text/") or mime in ("image/svg+xml", "application/javascript"):
                value = bytes(value).decode("utf-8", "replace")
            else:
                value = as_base64(value)
        elif isinstance(value, str):
            value = exact(value)
            is_text = mime.startswith("text/") or mime in ("image/svg+xml", "application/javascript")
            if not is_text:
                value = value.replace("\n", "")
            size = len(value.encode()) if is_text else len(value) * 3 // 4
        else:
            raise TypeError(f"it is neither text nor bytes but {type_name(type(value))}")
        if size > longest:
            self.note(f"{mime} was left out: it has {size >> 10} KiB, and {longest >> 10} KiB can be shown")
            return None
        return value

    def fill(self, value, wanted):
        """False if the value has shown itself."""
        kind = type(value)
        own = self.formatters["text/plain"].find(kind)
        if kind in PLAIN_TYPES and own is None:
            self.add("text/plain", plain(value))
            return True
        if is_kind_of(value, "matplotlib.figure", "Figure"):
            self.add("image/png", draw(value))
            self.add("text/plain", plain(value))
            return True
        if is_kind_of(value, "plotly.basedatatypes", "BaseFigure"):
            self.attempt("application/vnd.plotly.v1+json", value.to_json)
            self.add("text/plain", plain(value))
            return True
        if not issubclass(kind, type):
            if has_method(kind, "_ipython_display_"):
                # NotImplementedError: "as if I had none".
                try:
                    value._ipython_display_()
                    return False
                except NotImplementedError:
                    pass
            self.ask(value, kind, wanted)
        if own is not None:
            printer = Printer()
            self.attempt("text/plain", lambda: own(value, printer, False) or "".join(printer.pieces))
        if "text/plain" not in self.data:
            try:
                self.add("text/plain", plain(value))
            except Exception as error:
                if not self.data:
                    raise
                self.note(f"repr() of {type_name(kind)} failed: {short(error)}")
        return True

    def ask(self, value, kind, wanted):
        if has_method(kind, "_repr_mimebundle_"):
            try:
                bundle = value._repr_mimebundle_(include=wanted[0], exclude=wanted[1])
                if bundle is not None:
                    data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
                    for mime, form in dict(data).items():
                        self.add(exact(mime), form, (metadata or {}).get(mime))
            except Exception as error:
                self.note(f"_repr_mimebundle_ of {type_name(kind)} failed: {short(error)}")
        for name, mime in METHODS:
            if mime in self.data or not is_wanted(mime, wanted):
                continue
            function = self.formatters[mime].find(kind)
            if function is not None:
                self.attempt(mime, lambda: function(value))
            elif has_method(kind, name):
                self.attempt(mime, lambda: getattr(value, name)())

    def attempt(self, mime, function):
        try:
            self.add(mime, function())
        except Exception as error:
            self.note(f"the value's {mime} could not be made: {short(error)}")


def is_wanted(mime, wanted):
    include, exclude = wanted
    return (not include or mime in include) and (not exclude or mime not in exclude)

"""What `IPython.display` has to be shown: `HTML`, `Image` and the others."""

from redoma_guarded import BUILTINS as __builtins__

import _io
import errno
import json
import os

from redoma_forms import LONGEST_MARKUP
from redoma_guarded import read_file, type_name
from redoma_texts import as_base64


def escape(text):
    for character, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot")):
        text = text.replace(character, f"&{name};")
    return text


class DisplayObject:
    """Something to be shown, from text or bytes, or from a file."""

    binary = False

    def __init__(self, data=None, url=None, filename=None, metadata=None, **more):
        if isinstance(data, os.PathLike):
            data, filename = None, os.fspath(data)
        elif isinstance(data, str) and url is None and filename is None:
            if data.startswith(("http://", "https://")) and not any(map(str.isspace, data)):
                data, url = None, data
            elif len(data) < 1000 and "\0" not in data and os.path.isfile(data):
                data, filename = None, data
        self.url, self.filename, self.metadata = url, filename, metadata or {}
        self.data = data
        self.reload()

    def reload(self):
        if self.filename is not None:
            self.data = read_file(self.filename)
            if not self.binary:
                self.data = self.data.decode("utf-8", "replace")
        elif self.url is not None and not self.by_reference():
            raise OSError(errno.ENETUNREACH, f"there is no network to get {self.url} from")

    def by_reference(self):
        """Whether whoever looks at it can get it by its address."""
        return False

    def __repr__(self):
        return f"<IPython.core.display.{type_name(type(self))} object>"

    def form(self):
        return (self.data, self.metadata) if self.metadata else self.data


class TextDisplayObject(DisplayObject):
    pass


class HTML(TextDisplayObject):
    def _repr_html_(self):
        return self.form()

    __html__ = _repr_html_


class Markdown(TextDisplayObject):
    def _repr_markdown_(self):
        return self.form()


class Latex(TextDisplayObject):
    def _repr_latex_(self):
        return self.form()


class Math(TextDisplayObject):
    def _repr_latex_(self):
        return f"$\\displaystyle {self.data.strip('$')}$"


class SVG(TextDisplayObject):
    def __init__(self, data=None, **more):
        super().__init__(data.decode() if isinstance(data, bytes) else data, **more)

    def _repr_svg_(self):
        return self.form()


class Javascript(TextDisplayObject):
    def __init__(self, data=None, url=None, filename=None, lib=None, css=None):
        super().__init__(data, url=url, filename=filename)

    def _repr_javascript_(self):
        return self.form()


class Pretty(TextDisplayObject):
    def __repr__(self):
        return self.data


class Code(TextDisplayObject):
    def __init__(self, data=None, url=None, filename=None, language=None):
        self.language = language
        super().__init__(data, url=url, filename=filename)

    def _repr_html_(self):
        return f"<pre><code>{escape(self.data)}</code></pre>"

    def __repr__(self):
        return self.data


class JSON(DisplayObject):
    def __init__(self, data=None, url=None, filename=None, expanded=False, metadata=None, root="root", **more):
        metadata = {"expanded": expanded, "root": root, **(metadata or {})}
        super().__init__(data, url=url, filename=filename, metadata=metadata)
        if isinstance(self.data, str):
            self.data = json.loads(self.data)

    def _repr_json_(self):
        return self.data, self.metadata


IMAGES = ((b"\x89PNG", "png"), (b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp"), (b"BM", "bmp"))


class Image(DisplayObject):
    binary = True

    def __init__(self, data=None, url=None, filename=None, format=None, embed=None, width=None, height=None,
                 metadata=None, alt=None, **more):  # fmt: skip
        self.format, self.width, self.height, self.alt = format, width, height, alt
        super().__init__(data, url=url, filename=filename, metadata=metadata)
        if self.url is None and not isinstance(self.data, (bytes, bytearray)):
            raise FileNotFoundError(errno.ENOENT, "there is no such picture", str(data))

    def by_reference(self):
        return True

    def sizes(self):
        return {name: getattr(self, name) for name in ("width", "height", "alt") if getattr(self, name) is not None}

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.data is None:
            sizes = "".join(f' {name}="{escape(str(value))}"' for name, value in self.sizes().items())
            return {"text/html": f'<img src="{escape(self.url)}"{sizes}/>'}
        kind = next((kind for start, kind in IMAGES if self.data.startswith(start)), self.format or "png")
        return {f"image/{kind}": bytes(self.data)}, {f"image/{kind}": {**self.metadata, **self.sizes()}}


class Media(DisplayObject):
    """Sounds and films: as data, and as something that a page can play."""

    binary = True
    tag, default = "audio", "audio/wav"

    def __init__(self, data=None, filename=None, url=None, mimetype=None, attributes="controls", **more):
        self.mimetype, self.attributes = mimetype, attributes
        super().__init__(data, url=url, filename=filename)
        if self.mimetype is None:
            import mimetypes

            self.mimetype = mimetypes.guess_type(self.filename or self.url or "")[0] or self.default

    def by_reference(self):
        return True

    def page(self, source):
        return f'<{self.tag} {self.attributes} src="{source}"></{self.tag}>'

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.data is None:
            return {"text/html": self.page(escape(self.url))}
        forms = {self.mimetype: bytes(self.data)}
        if len(self.data) < LONGEST_MARKUP * 2 // 3:
            forms["text/html"] = self.page(f"data:{self.mimetype};base64,{as_base64(self.data)}")
        return forms


class Audio(Media):
    def __init__(self, data=None, filename=None, url=None, embed=None, rate=None, autoplay=False, normalize=True,
                 **more):  # fmt: skip
        if data is not None and not isinstance(data, (str, bytes, os.PathLike)):
            if rate is None:
                raise ValueError("rate must be specified when data is a numpy array or list of audio samples.")
            data = as_wave(data, rate, normalize)
        super().__init__(data, filename, url, attributes="controls autoplay" if autoplay else "controls")


class Video(Media):
    tag, default = "video", "video/mp4"

    def __init__(self, data=None, url=None, filename=None, embed=False, mimetype=None, width=None, height=None,
                 html_attributes="controls"):  # fmt: skip
        sizes = "".join(f' {name}="{int(size)}"' for name, size in (("width", width), ("height", height)) if size)
        super().__init__(data, filename, url, mimetype, html_attributes + sizes)


def as_wave(samples, rate, normalize):
    """Samples between -1 and 1, for one ear or several, as a WAV file of 16 bits."""
    import array
    import wave

    if hasattr(samples, "tolist"):
        rows = samples.tolist()
    else:
        rows = [list(row) if hasattr(row, "__iter__") else row for row in samples]
    channels = len(rows) if rows and isinstance(rows[0], list) else 1
    if channels > 1:
        rows = [value for moment in zip(*rows) for value in moment]
    elif rows and isinstance(rows[0], list):
        rows = rows[0]
    most = max(map(abs, rows), default=0) if normalize else 1
    if not normalize and any(abs(value) > 1 for value in rows):
        raise ValueError("Audio data must be between -1 and 1 when normalize=False.")
    file = _io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(2)
        writer.setframerate(int(rate))
        writer.writeframes(array.array("h", [int(value / (most or 1) * 32767) for value in rows]).tobytes())
    return file.getvalue()


class IFrame:
    def __init__(self, src, width="100%", height=400, extras=None, **parameters):
        self.src, self.width, self.height, self.extras, self.params = str(src), width, height, extras or [], parameters

    def _repr_html_(self):
        from urllib.parse import urlencode

        source = self.src + ("?" + urlencode(self.params) if self.params else "")
        size = f'width="{escape(str(self.width))}" height="{escape(str(self.height))}"'
        return f'<iframe {size} src="{escape(source)}" frameborder="0" {" ".join(self.extras)}></iframe>'


class YouTubeVideo(IFrame):
    def __init__(self, id, width=400, height=300, **more):
        super().__init__(f"https://www.youtube.com/embed/{id}", width, height, **more)


class FileLink:
    def __init__(self, path, url_prefix="", result_html_prefix="", result_html_suffix="<br>"):
        self.path, self.prefix = os.fspath(path), url_prefix
        self.around = result_html_prefix, result_html_suffix

    def _repr_html_(self):
        path = escape(self.prefix + self.path)
        return f'{self.around[0]}<a href="{path}" target="_blank">{escape(self.path)}</a>{self.around[1]}'

    def __repr__(self):
        return os.path.abspath(self.path)


class FileLinks(FileLink):
    def names(self):
        return [os.path.join(folder, name) for folder, _, names in os.walk(self.path) for name in sorted(names)]

    def _repr_html_(self):
        return "".join(FileLink(name, self.prefix)._repr_html_() for name in self.names())

    def __repr__(self):
        return "\n".join(self.names())

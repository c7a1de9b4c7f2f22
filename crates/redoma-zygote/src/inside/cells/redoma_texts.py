"""Texts and JSON as they can be sent, whatever they come from and whatever cells have done to the interpreter."""

from redoma_guarded import BUILTINS as __builtins__

import binascii
import json

from redoma_guarded import type_name

LONGEST_TEXT = 64 << 10


def exact(text):
    """As a string proper, which can be sent: without half characters."""
    text = str.__str__(text)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-8", "backslashreplace").decode()
    return text


def cut(text, longest=LONGEST_TEXT):
    text = exact(text)
    if len(text) * 4 <= longest:
        return text
    encoded = text.encode()
    if len(encoded) <= longest:
        return text
    return encoded[:longest].decode("utf-8", "ignore") + f"\n[... cut: only the first {longest >> 10} KiB are shown]"


def short(error):
    """An exception in one line, whatever it does when it is asked for its text."""
    name = exact(type_name(type(error)))
    try:
        text = str(error)
        return exact(f"{name}: {text}" if text else name)[:500]
    except KeyboardInterrupt:
        raise
    except BaseException:
        return name[:500]


def refuse(value):
    raise TypeError(f"{type_name(type(value))} has no form in JSON")


# The parts of `json` that are no Python: they need nothing that a cell can change.
json_encoder = json.encoder.c_make_encoder(
    None, refuse, json.encoder.c_encode_basestring, None, ": ", ", ", False, False, False
)
json_scanner = json.JSONDecoder().scan_once


def encode(value):
    """As JSON, whatever cells have done to the interpreter."""
    return "".join(json_encoder(value, 0))


def decode(text):
    try:
        return json_scanner(text.strip(), 0)[0]
    except StopIteration:
        raise ValueError("this is not JSON") from None


def pure(value):
    """The same with nothing in it that can't be sent."""
    return decode(exact(encode(value)))


def as_base64(data):
    return binascii.b2a_base64(data, newline=False).decode()

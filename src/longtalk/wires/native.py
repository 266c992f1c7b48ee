"""Helpers for native JSON that several wires share: request bodies, arrays, and strings that arrive in pieces.

Native JSON is JSON in the provider's own format. A streamed text arrives as JSON strings. Their bodies are joined
unchanged, so that escapes stay as the provider wrote them. For display, each piece is decoded separately. An emoji
outside the basic plane is two escapes (a surrogate pair), and a stream may split it between two pieces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from longtalk._util import json_bytes

BACKSLASH = ord("\\")
"""The first byte of an escape. The body of a JSON string without any backslash is the text itself."""

# A high surrogate as an escape (not an escaped backslash and letters) before the closing quote.
_HALF = re.compile(rb'(?<!\\)((?:\\\\)*)\\u[dD][89abAB].."$')


def array_items(data: bytes) -> list[bytes]:
    """Return the elements of a JSON array, or an empty list if the value is not an array."""
    return json_bytes.items(data) if data[:1] == b"[" else []


def object_fields(data: bytes) -> dict[str, bytes]:
    """Return the members of a JSON object, or an empty dict if the value is not an object."""
    return json_bytes.fields(data) if data[:1] == b"{" else {}


def array_objects(data: bytes) -> list[dict[str, bytes]]:
    """Return the members of each object in a JSON array. Elements of other types are left out."""
    return [json_bytes.fields(item) for item in array_items(data) if item[:1] == b"{"]


def split_piece(piece: bytes | memoryview) -> list[bytes]:
    """Return the messages in a piece of a request, which is one message or several joined by commas."""
    return json_bytes.items(b"[%s]" % piece)


def splice(fields: dict[str, bytes], pieces: Sequence[bytes | memoryview], *, name: bytes = b"messages") -> bytes:
    """Return a request body: the fields, then the messages as an array called `name`. Each piece is copied once."""
    parts: list[bytes | memoryview] = [json_bytes.build(fields)[:-1], b',"%s":[' % name if fields else b'"%s":[' % name]
    for i, piece in enumerate(pieces):
        parts += (b"," if i else b"", piece)
    return b"".join((*parts, b"]}"))


def decode_piece(held: bytes, string: bytes) -> tuple[str, bytes]:
    """Return the text of the next piece of a streamed JSON string, and the bytes to hold back for the piece after it.

    `held` is what the previous call held back: the first half of a surrogate pair, or nothing.
    """
    if not held and string[-7:-5] != b"\\u":
        return json_bytes.text(string) or "", b""
    body = held + string[1:-1]
    before = body[:-6]
    escaped = (len(before) - len(before.rstrip(b"\\"))) % 2
    is_half = not escaped and re.fullmatch(rb"\\u[dD][89abAB]..", body[-6:])
    body, held = (before, body[-6:]) if is_half else (body, b"")
    return json_bytes.text(b'"%s"' % body) or "", held


def drop_half_character(value: bytes) -> bytes:
    """Remove an incomplete character from the end of a JSON string: half a surrogate pair, or some of its UTF-8 bytes.

    An interrupted stream can leave one. Strict servers would then reject every later request of the conversation.
    """
    value = _HALF.sub(rb'\1"', value)
    try:
        value.decode()
    except UnicodeDecodeError as problem:
        if problem.reason == "unexpected end of data" or value[problem.end :] in (b'"', b""):
            return value[: problem.start] + b'"'
    return value

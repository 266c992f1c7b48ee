"""JSON as bytes: take a document apart without losing any of it.

A value that is only passed on is never decoded: `fields` and `items` cut an object or an array into the exact
bytes of its members. `text` and `value` decode where the content itself is needed, for reading only.
Lone surrogates (half an emoji, as some models send) are legal JSON that the parser refuses: they are masked
for the parser and put back. Whatever is not JSON is a `ValueError`, also a document nested too deeply.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import msgspec

_DEEP = "nested too deeply"


class _Unread(msgspec.Struct):
    """An object of which nothing is kept."""


_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])
_string = msgspec.json.Decoder(str)
_any = msgspec.json.Decoder()
_unread = msgspec.json.Decoder(_Unread)
_encode = msgspec.json.Encoder().encode

# An escaped backslash and a whole pair are passed over, so that what is left is a surrogate on its own.
_LONE = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u([dD][89a-fA-F][0-9a-fA-F]{2})"
)


def fields(data: bytes) -> dict[str, bytes]:
    """The members of a JSON object, each as the bytes it came in. Of a doubled key the last one counts."""
    try:
        return {key: bytes(raw) for key, raw in _object.decode(data).items()}
    except (ValueError, RecursionError) as problem:
        masked, mark = _mask(data, problem)
    try:
        return {_unmask_key(key, mark): _unmask(bytes(raw), mark) for key, raw in _object.decode(masked).items()}
    except (ValueError, RecursionError) as problem:
        _refuse(problem)


def items(data: bytes | memoryview) -> list[bytes]:
    """The elements of a JSON array, each as the bytes it came in."""
    try:
        return [bytes(raw) for raw in _array.decode(data)]
    except (ValueError, RecursionError) as problem:
        masked, mark = _mask(bytes(data), problem)
    try:
        return [_unmask(bytes(raw), mark) for raw in _array.decode(masked)]
    except (ValueError, RecursionError) as problem:
        _refuse(problem)


def lengths(data: bytes | memoryview) -> list[int]:
    """How long each element of a JSON array is, in bytes: the cheapest proof that it is one."""
    try:
        return list(map(len, _array.decode(data)))
    except (ValueError, RecursionError) as problem:
        masked = _blot(data, problem)
    try:
        return list(map(len, _array.decode(masked)))
    except (ValueError, RecursionError) as problem:
        _refuse(problem)


def prove(data: bytes | memoryview) -> None:
    """Raise `ValueError` unless this is a JSON object. Takes no memory."""
    try:
        _unread.decode(data)
        return
    except (ValueError, RecursionError) as problem:
        masked = _blot(data, problem)
    try:
        _unread.decode(masked)
    except (ValueError, RecursionError) as problem:
        _refuse(problem)


def text(data: bytes) -> str | None:
    """A JSON string as text, for reading: what is not Unicode shows as U+FFFD. None for any other value."""
    if data[:1] != b'"':
        return None
    try:
        return _string.decode(data)
    except ValueError:
        return _string.decode(_readable(data))


def value(data: bytes) -> Any:
    """A JSON value as Python objects, for reading."""
    try:
        return _any.decode(data)
    except (ValueError, RecursionError):
        pass
    try:
        return _any.decode(_readable(data))
    except (ValueError, RecursionError) as problem:
        _refuse(problem)


def encode(value: Any) -> bytes:
    """Python objects as JSON. A lone surrogate in a text becomes U+FFFD: servers refuse its escape for ever."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        import json

        # What JSON has no number for (NaN) is null, as above.
        plain = json.loads(json.dumps(msgspec.to_builtins(value)), parse_constant=lambda _: None)
        return whole(json.dumps(plain, separators=(",", ":")).encode())


def build(members: dict[str, bytes]) -> bytes:
    """An object from the bytes of its members: the way back from `fields`."""
    return b"{" + b",".join([_key(key) + b":" + member for key, member in members.items()]) + b"}"


def whole(data: bytes) -> bytes:
    """The same with U+FFFD for each lone surrogate."""
    return _LONE.sub(lambda m: b"\\ufffd" if m[1] else m[0], data)


def _key(key: str) -> bytes:
    try:
        return _encode(key)
    except UnicodeEncodeError:
        import json

        return json.dumps(key).encode()


def _mask(data: bytes, problem: Exception) -> tuple[bytes, bytes]:
    import os

    mark = b"lone" + os.urandom(9).hex().encode()
    masked = _LONE.sub(lambda m: mark + m[1] if m[1] else m[0], data)
    if masked == data:
        _refuse(problem)
    return masked, mark


def _blot(data: bytes | memoryview, problem: Exception) -> bytearray:
    """With U+FFFD for each lone surrogate, which takes as many bytes in its escaped form."""
    masked, found = bytearray(data), False
    for match in _LONE.finditer(data):
        if match[1]:
            masked[match.start() : match.end()] = b"\\ufffd"
            found = True
    if not found:
        _refuse(problem)
    return masked


def _unmask(data: bytes, mark: bytes) -> bytes:
    return re.sub(mark + rb"(....)", rb"\\u\1", data) if mark in data else data


def _unmask_key(key: str, mark: bytes) -> str:
    return re.sub(mark.decode() + "(....)", lambda m: chr(int(m[1], 16)), key)


def _readable(data: bytes) -> bytes:
    return whole(data.decode("utf-8", "replace").encode())


def _refuse(problem: Exception) -> NoReturn:
    raise ValueError(_DEEP if isinstance(problem, RecursionError) else f"not JSON: {problem}") from None

"""JSON as bytes: split a document into its parts without changing a byte.

`fields` and `items` return the exact bytes of each member of an object or element of an array, so a value that is only
passed on is never decoded. `text` and `value` decode values that are read; a number beyond the range of a double is
read as infinite. Lone surrogates (half an emoji, as some models send) are legal JSON that the parser rejects, so they
are masked before parsing and restored afterwards. Invalid JSON and JSON that is nested too deeply raise `ValueError`.
The permitted depth does not depend on the caller's stack, so JSON that was read once can be read everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import msgspec

_T = TypeVar("_T")
_DEEP = "nested too deeply"
_MAX_DIGITS = 4_300
"""The number of digits above which Python refuses to convert text to an int."""


class _Unread(msgspec.Struct):
    """A type for decoding that accepts any JSON object and keeps none of its members."""


_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])
_string = msgspec.json.Decoder(str)
_any = msgspec.json.Decoder()
_unread = msgspec.json.Decoder(_Unread)
_encode = msgspec.json.Encoder().encode

# Escaped backslashes and complete surrogate pairs match first, so group 1 matches only a lone surrogate.
_LONE = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u([dD][89a-fA-F][0-9a-fA-F]{2})"
)


def fields(data: bytes) -> dict[str, bytes]:
    """Return the exact bytes of each member of a JSON object, by key. If a key occurs twice, its last value counts."""
    try:
        members = _object.decode(data)
        return dict(zip(members, map(bytes, members.values()), strict=True))
    except (ValueError, RecursionError) as problem:
        masked, mark = _mask(data, problem)
    try:
        return {
            _unmask_key(key, mark): _unmask(bytes(raw), mark) for key, raw in _decode(_object.decode, masked).items()
        }
    except (ValueError, RecursionError) as problem:
        _refuse(problem)


def items(data: bytes | memoryview) -> list[bytes]:
    """Return the exact bytes of each element of a JSON array."""
    try:
        return list(map(bytes, _array.decode(data)))
    except (ValueError, RecursionError) as problem:
        masked, mark = _mask(bytes(data), problem)
    try:
        return [_unmask(bytes(raw), mark) for raw in _decode(_array.decode, masked)]
    except (ValueError, RecursionError) as problem:
        _refuse(problem)


def lengths(data: bytes | memoryview) -> list[int]:
    """Return the length of each element of a JSON array, in bytes.

    This is also the cheapest way to check that the data is an array.
    """
    try:
        return list(map(len, _array.decode(data)))
    except (ValueError, RecursionError) as problem:
        masked = _blot(data, problem)
    try:
        return list(map(len, _decode(_array.decode, masked)))
    except (ValueError, RecursionError) as problem:
        _refuse(problem)


def check_object(data: bytes | memoryview) -> None:
    """Raise `ValueError` unless the data is a JSON object. Members are parsed but not kept in memory."""
    try:
        _unread.decode(data)
        return
    except (ValueError, RecursionError) as problem:
        masked = _blot(data, problem)
    try:
        _decode(_unread.decode, masked)
    except (ValueError, RecursionError) as problem:
        _refuse(problem)


def text(data: bytes) -> str | None:
    """Decode a JSON string, with invalid Unicode replaced by U+FFFD; return None if the JSON is not a string."""
    if data[:1] != b'"':
        return None
    try:
        return _string.decode(data)
    except ValueError:
        return _string.decode(_readable(data))


def value(data: bytes) -> Any:
    """Decode any JSON value to Python objects, with invalid Unicode replaced by U+FFFD and huge numbers by infinity."""
    try:
        return _any.decode(data)
    except (ValueError, RecursionError):
        pass
    data = _readable(data)
    try:
        try:
            return _decode(_any.decode, data)
        except msgspec.ValidationError:
            # The JSON is valid, but a number in it is out of range.
            return _decode(_load_huge_numbers, data)
    except (ValueError, RecursionError) as problem:
        _refuse(problem)


def encode(value: Any) -> bytes:
    """Encode a Python value as JSON. Lone surrogates become U+FFFD, because servers reject them even when escaped."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        import json

        # NaN becomes null, as msgspec writes it.
        plain = json.loads(json.dumps(msgspec.to_builtins(value)), parse_constant=lambda _: None)
        return replace_surrogates(json.dumps(plain, separators=(",", ":")).encode())


def build(members: dict[str, bytes]) -> bytes:
    """Build a JSON object from the bytes of its members. This is the inverse of `fields`."""
    try:
        return _encode(dict(zip(members, map(msgspec.Raw, members.values()), strict=True)))
    except UnicodeEncodeError:
        return b"{" + b",".join([_key(key) + b":" + member for key, member in members.items()]) + b"}"


def replace_surrogates(data: bytes) -> bytes:
    """Return the JSON with each lone surrogate replaced by U+FFFD."""
    return _LONE.sub(lambda m: b"\\ufffd" if m[1] else m[0], data)


def _decode(decode: Callable[[Any], _T], data: bytes | bytearray) -> _T:
    """Decode JSON that the first attempt could not decode, in a new thread if the stack is too deep here."""
    try:
        return decode(data)
    except RecursionError:
        from concurrent.futures import ThreadPoolExecutor

        # A new thread has an empty stack.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(decode, data).result()


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
    # The parser also rejects keys that are not UTF-8. An invalid byte becomes a number below 256: no surrogate is.
    text = masked.decode("utf-8", "surrogateescape")
    masked = re.sub("[\udc80-\udcff]", lambda m: f"{mark.decode()}{ord(m[0]) & 255:04x}", text).encode()
    if masked == data and not isinstance(problem, RecursionError):
        _refuse(problem)
    return masked, mark


def _blot(data: bytes | memoryview, problem: Exception) -> bytearray:
    """Return a copy with each lone surrogate replaced by a valid escape of the same length, so offsets stay valid.

    If there are no lone surrogates and `problem`, the error of the first attempt, was not a lack of stack, raise
    `ValueError` with its message.
    """
    masked, found = bytearray(data), False
    for match in _LONE.finditer(data):
        if match[1]:
            masked[match.start() : match.end()] = b"\\ufffd"
            found = True
    if not found and not isinstance(problem, RecursionError):
        _refuse(problem)
    return masked


def _unmask(data: bytes, mark: bytes) -> bytes:
    return re.sub(mark + rb"(....)", _restore, data) if mark in data else data


def _restore(masked: re.Match[bytes]) -> bytes:
    return bytes([int(masked[1], 16)]) if masked[1].startswith(b"00") else b"\\u" + masked[1]


def _unmask_key(key: str, mark: bytes) -> str:
    # A byte that is not UTF-8 becomes a lone surrogate, as the error handler "surrogateescape" does it.
    return re.sub(mark.decode() + "(....)", lambda m: chr(int("dc" + m[1][2:] if m[1][:2] == "00" else m[1], 16)), key)


def _load_huge_numbers(data: bytes) -> Any:
    import json

    return json.loads(data, parse_int=lambda digits: int(digits) if len(digits) < _MAX_DIGITS else float(digits))


def _readable(data: bytes) -> bytes:
    return replace_surrogates(data.decode("utf-8", "replace").encode())


def _refuse(problem: Exception) -> NoReturn:
    raise ValueError(_DEEP if isinstance(problem, RecursionError) else f"not JSON: {problem}") from None

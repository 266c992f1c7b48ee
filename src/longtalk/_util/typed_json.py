"""Decode JSON into typed values, from any thread.

msgspec collects what it has to know about a type when the type is first used, and crashes the process if another thread
uses the type in that moment. So each decoder is made under one lock, and kept.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_decoders: dict[tuple[Any, bool], msgspec.json.Decoder[Any]] = {}
_lock = threading.Lock()


def decode(data: bytes, kind: type[T], *, strict: bool = True) -> T:
    """Return JSON as a value of a type. Raises as `msgspec.json.decode` does."""
    decoder = _decoders.get((kind, strict))
    if decoder is None:
        with _lock:
            decoder = _decoders[kind, strict] = msgspec.json.Decoder(kind, strict=strict)
    value: T = decoder.decode(data)
    return value

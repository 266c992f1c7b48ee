"""Parts of tool results: what a wire's results can hold besides text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from longtalk.errors import InputError


def make_result_parts(content: Sequence[Any], text_type: str, *, wire: str, types: Sequence[str]) -> list[Any]:
    """Return the parts of a result, with each text as a part of the type `text_type`.

    Raises `InputError` if a part has none of the types that a result of this wire can hold.
    """
    parts = [{"type": text_type, "text": part} if isinstance(part, str) else part for part in content]
    for part in parts:
        if part.get("type") not in types:
            raise refuse_part(part.get("type"), wire, types)
    return parts


def refuse_part(kind: object, wire: str, types: Sequence[str]) -> InputError:
    """Return the error for a part that a result of a wire can't hold."""
    held = ", ".join(map(repr, types))
    return InputError(
        f"A tool result of {wire} can't hold a part of the kind {kind!r}, only {held}: say in text what it shows, or "
        "send it in the next message."
    )

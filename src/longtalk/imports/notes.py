"""What is told of an import: what could not come along as it was. A note has words for many, and for one."""

from __future__ import annotations

_ONE: dict[str, str] = {}
_KIND, _BESIDE = "messages of the kind ", " are kept beside their places, and not sent"


def note(many: str, one: str) -> str:
    """Words that follow a number, and those that follow 1. Returns the first, by which it is counted."""
    _ONE[many] = one
    return many


def of_kind(kind: object) -> str:
    """The note about messages of a kind that is not known here."""
    return f"{_KIND}{shown(kind)}{_BESIDE}"


def shown(kind: object) -> str:
    """What a file calls a kind, for reading: short and on one line."""
    return "".join(char if char.isprintable() else " " for char in str(kind)[:40]).strip() or "unknown"


def counted(text: str, times: int) -> str:
    """A note with its number."""
    if times != 1:
        return f"{times:,} {text}"
    if text.startswith(_KIND) and text.endswith(_BESIDE):
        kind = text.removeprefix(_KIND).removesuffix(_BESIDE)
        return f"1 message of the kind {kind} is kept beside its place, and not sent"
    return f"1 {_ONE.get(text, text)}"

"""Notes about an import, which describe what could not be imported unchanged, in the plural and the singular."""

from __future__ import annotations

_ONE: dict[str, str] = {}
_KIND, _BESIDE = "messages of the kind ", " are kept beside their places, and not sent"


def note(many: str, one: str) -> str:
    """Register the plural and singular wording of a note, and return the plural, under which the note is counted."""
    _ONE[many] = one
    return many


def of_kind(kind: object) -> str:
    """Return the note about messages of an unknown kind."""
    return f"{_KIND}{shown(kind)}{_BESIDE}"


def shown(kind: object) -> str:
    """Return the name of a kind, as found in a file, as short, printable text on one line."""
    return "".join(char if char.isprintable() else " " for char in str(kind)[:40]).strip() or "unknown"


def counted(text: str, times: int) -> str:
    """Return a note with the number of times it applies, in the singular if that is 1."""
    if times != 1:
        return f"{times:,} {text}"
    if text.startswith(_KIND) and text.endswith(_BESIDE):
        kind = text.removeprefix(_KIND).removesuffix(_BESIDE)
        return f"1 message of the kind {kind} is kept beside its place, and not sent"
    return f"1 {_ONE.get(text, text)}"

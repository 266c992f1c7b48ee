"""Notes about an import: what was left out or changed, worded in the plural and the singular."""

from __future__ import annotations

_SINGULAR: dict[str, str] = {}
_TYPE, _PLACEHOLDER = "messages of the unknown type ", " became placeholders, with their content kept as metadata"


def register_note(plural: str, singular: str) -> str:
    """Register the wording of a note, and return the plural, under which the note is counted."""
    _SINGULAR[plural] = singular
    return plural


def describe_unknown_kind(kind: object) -> str:
    """Return the note about messages of an unknown kind, in the plural."""
    return f"{_TYPE}{format_kind(kind)}{_PLACEHOLDER}"


def format_kind(kind: object) -> str:
    """Return the name of a kind, as found in a file, as short, printable text on one line."""
    return "".join(char if char.isprintable() else " " for char in str(kind)[:40]).strip() or "unknown"


def format_note(text: str, times: int) -> str:
    """Return a note with the number of times it applies, in the singular if that is 1."""
    if times != 1:
        return f"{times:,} {text}"
    if text.startswith(_TYPE) and text.endswith(_PLACEHOLDER):
        kind = text.removeprefix(_TYPE).removesuffix(_PLACEHOLDER)
        return f"1 message of the unknown type {kind} became a placeholder, with its content kept as metadata"
    return f"1 {_SINGULAR.get(text, text)}"

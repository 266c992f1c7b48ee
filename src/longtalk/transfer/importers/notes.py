"""Notes about what an import left out or changed. Each has a plural and a singular wording."""

from __future__ import annotations

_SINGULAR: dict[str, str] = {}
_TYPE, _PLACEHOLDER = "messages of the unknown type ", " became placeholders, with their content kept as metadata"


def register_note(plural: str, singular: str) -> str:
    """Register both wordings of a note, and return the plural, which is the key under which the note is counted."""
    _SINGULAR[plural] = singular
    return plural


def describe_unknown_kind(kind: object) -> str:
    """Return the plural note for messages of an unknown type that became placeholders."""
    return f"{_TYPE}{format_kind(kind)}{_PLACEHOLDER}"


def format_kind(kind: object) -> str:
    """Return a type name from a file as short, printable text on one line."""
    return "".join(char if char.isprintable() else " " for char in str(kind)[:40]).strip() or "unknown"


def format_note(text: str, times: int) -> str:
    """Return a note with its count. `text` is the plural wording; for a count of 1, the singular is used instead."""
    if times != 1:
        return f"{times:,} {text}"
    if text.startswith(_TYPE) and text.endswith(_PLACEHOLDER):
        kind = text.removeprefix(_TYPE).removesuffix(_PLACEHOLDER)
        return f"1 message of the unknown type {kind} became a placeholder, with its content kept as metadata"
    return f"1 {_SINGULAR.get(text, text)}"

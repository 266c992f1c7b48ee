"""The grammars that providers speak, by name."""

from __future__ import annotations

from collections.abc import Mapping

from longtalk.pack import Entry
from longtalk.wires import anthropic, claude_cli, codex_cli, gemini, gemini_cli, openai_chat, openai_responses
from longtalk.wires.base import LONGTALK, Usage, Wire, redacted_own, text_of

_HTTP: tuple[Wire, ...] = (openai_chat.WIRE, openai_responses.WIRE, anthropic.WIRE, gemini.WIRE)
_AGENTS: tuple[Wire, ...] = (claude_cli.WIRE, gemini_cli.WIRE, codex_cli.WIRE)
HTTP_WIRES: Mapping[str, Wire] = {wire.name: wire for wire in _HTTP}
AGENTS: Mapping[str, Wire] = {wire.name: wire for wire in _AGENTS}
WIRES: Mapping[str, Wire] = {**HTTP_WIRES, **AGENTS}
NAMES = frozenset((*WIRES, LONGTALK))


def said(entry: Entry) -> str:
    """What an entry says; nothing when it can't be read."""
    if entry.wire not in NAMES:
        return ""
    try:
        return text_of(entry)
    except (ValueError, LookupError, TypeError):
        return ""


def redacted(entry: Entry, text: str) -> bytes:
    """The JSON of an entry that says this instead, and still fits between its neighbours: its calls keep their ids.

    Raises `LookupError` for a wire that is not known here, `ValueError` for what can't be read.
    """
    return redacted_own(entry, text) if entry.wire == LONGTALK else WIRES[entry.wire].redacted(entry.native, text)


def reported(raw: bytes, wire: str) -> Usage:
    """A report of usage as this wire reads it, or any other that can: it may have come from elsewhere."""
    readings = (WIRES[name].usage(raw) for name in (wire, *WIRES) if name in WIRES)
    return next((usage for usage in readings if usage != Usage()), Usage())

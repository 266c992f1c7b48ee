"""Operations on entries of any wire: read, redact, shorten and digest them.

Each entry names its wire, which these functions look up. An unknown wire raises `LookupError`; JSON that can't be read
raises `ValueError`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from longtalk._util import json_bytes
from longtalk.transcript.pack import VERBATIM, Entry
from longtalk.usage import Usage
from longtalk.wires.describe import describe
from longtalk.wires.neutral import LONGTALK, redact_neutral
from longtalk.wires.protocol import Wire
from longtalk.wires.registry import NAMES, WIRES
from longtalk.wires.text import cut_middle
from longtalk.wires.views import MessageView, show_cards


def view_entry(entry: Entry) -> MessageView:
    """Return the readable content of an entry's message.

    Entries in Longtalk's neutral grammar (events, system messages) have no view; use `read_text` for those.
    """
    view = WIRES[entry.wire].view(entry.native)
    return show_cards(view) if entry.is_verbatim else view


def mark_verbatim(entry: Entry, view: MessageView | None = None) -> Entry:
    """Return an answer that was not made under `Memory`, marked as verbatim if its end looks like a memory card.

    `view` is the wire's view of the answer, if the caller has it. Other entries are returned unchanged.
    """
    if entry.role != "assistant" or entry.is_verbatim or entry.wire not in WIRES:
        return entry
    if (view or WIRES[entry.wire].view(entry.native)).whole is None:
        return entry
    return entry.with_mark(VERBATIM)


def read_text(entry: Entry) -> str:
    """Return the text of an entry, without memory cards."""
    return str(json_bytes.value(entry.native)["text"]) if entry.wire == LONGTALK else view_entry(entry).text


def describe_entry(entry: Entry) -> tuple[str, MessageView]:
    """Return a text for an entry, which is never empty, and the view of its message."""
    view = MessageView(role=entry.role)
    if entry.wire not in NAMES:
        return f"[a message in the unknown format {entry.wire!r}]", view
    try:
        if entry.wire == LONGTALK:
            return read_text(entry) or "[empty]", view
        view = view_entry(entry)
        return view.text if view.text.strip() else describe(entry.native, view), view
    except (ValueError, LookupError, TypeError, AttributeError):
        return "[a message that can't be read]", view


def text_if_readable(entry: Entry) -> str:
    """Return the text of an entry, or "" if its wire is unknown or its JSON can't be read."""
    if entry.wire not in NAMES:
        return ""
    try:
        return read_text(entry)
    except (ValueError, LookupError, TypeError):
        return ""


def read_usage(raw: bytes, wire: str) -> Usage:
    """Return the token counts in a usage report, read in the format of `wire`.

    If that finds no tokens, every other wire is tried in turn.
    """
    readings = (WIRES[name].read_usage(raw) for name in (wire, *WIRES) if name in WIRES)
    return next((usage for usage in readings if usage != Usage()), Usage())


def redact(entry: Entry, text: str) -> bytes:
    """Return an entry's JSON with `text` as its only content. Its tool calls keep their ids, so results still match."""
    return redact_neutral(entry, text) if entry.wire == LONGTALK else WIRES[entry.wire].redact(entry.native, text)


def shorten_entry(entry: Entry, keep: int) -> Entry:
    """Return a tool result or an event with the middle of its text removed, so that about `keep` characters remain."""
    text = cut_middle(read_text(entry), keep)
    if entry.wire == LONGTALK:
        native = json_bytes.build({**json_bytes.fields(entry.native), "text": json_bytes.encode(text)})
    else:
        seen = view_entry(entry)
        native = WIRES[entry.wire].write_result(
            seen.call_id, text, error=entry.condition in ("error", "closed"), name=seen.name
        )
    return msgspec.structs.replace(entry, native=native)


def make_closing_result(wire: Wire, call_id: str, text: str, *, at: int, name: str = "") -> Entry:
    """Return an error result with this text for a tool call that has no result; providers would reject such a call."""
    native = wire.write_result(call_id, text, error=True, name=name)
    return Entry(role="tool", wire=wire.name, native=native, at=at, mark="closed")


def digest_tool_calls(entries: Sequence[Entry]) -> list[str]:
    """Return a short line for each tool call, with its arguments and result, and for each text between the calls."""
    called: dict[str, str] = {}
    lines: list[str] = []
    for entry in entries:
        seen = view_entry(entry)
        if seen.text.strip() and not seen.call_id:
            lines.append(f"You said: {_one_line(seen.text)}")
        for call in seen.calls:
            called[call.id] = f"{call.name}({_one_line(call.arguments.decode('utf-8', 'replace'))})"
        if seen.call_id:
            lines.append(f"{called.pop(seen.call_id, 'a tool')} → {_one_line(seen.text) or 'nothing'}")
    return [*lines, *(f"{call} → no result" for call in called.values())]


def _one_line(text: str) -> str:
    line = " ".join(text[:400].split())
    return line if len(line) <= 100 and len(text) <= 400 else f"{line[:100]}…"

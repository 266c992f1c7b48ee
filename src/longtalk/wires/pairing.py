"""Pairing of tool calls and results.

In a valid transcript, the results of an answer's calls directly follow the answer, and every result has its call.
"""

from __future__ import annotations

from collections.abc import Iterable

from longtalk._util import json_bytes
from longtalk.transcript.pack import ANSWERS, Entry
from longtalk.transcript.transcript import Transcript
from longtalk.wires.entries import view_entry
from longtalk.wires.native import array_items
from longtalk.wires.protocol import Answer, Wire
from longtalk.wires.registry import NAMES, WIRES
from longtalk.wires.views import MessageView, ToolCallView

_ARRAYS = ("content", "tool_calls", "parts", "output", "events")
"""The members of answers and tool results that hold arrays of objects."""


def check_pairs(entries: Iterable[Entry]) -> None:
    """Raise `ValueError` unless all entries can be read and tool calls and results are paired.

    Only the calls of the last answer may still lack results.
    """
    waiting: tuple[str, ...] = ()
    for entry in entries:
        try:
            waiting = track_open_calls(entry, waiting)
        except ValueError as problem:
            raise ValueError(f"{entry.id!r} {problem}") from None


def track_open_calls(entry: Entry, waiting: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ids of the tool calls that still lack a result after this entry.

    `waiting` holds the ids of the calls that lacked a result before this entry. Raises `ValueError` if the entry is a
    result without its call, or if it is not a result although calls are waiting.
    """
    if entry.wire not in NAMES:
        # An unknown wire is never sent, so its pairs don't matter.
        return waiting
    seen = WIRES[entry.wire].view(entry.native) if entry.wire in WIRES else MessageView(entry.role)
    if seen.call_id and seen.call_id not in waiting:
        raise ValueError("is the result of an unknown tool call")
    if waiting and not seen.call_id:
        raise ValueError(f"comes before the result of the tool call {waiting[0]!r}")
    left = list(waiting)
    if seen.call_id:
        left.remove(seen.call_id)
    return (*left, *[call.id for call in seen.calls])


def find_answer_wire(transcript: Transcript, wire: Wire) -> Wire:
    """Return the wire in which to write the next tool result.

    That is the wire of the last answer, or `wire` if the transcript does not end in an answer and its tool results.
    """
    for i in range(len(transcript) - 1, -1, -1):
        entry = transcript[i]
        if entry.role == "assistant":
            return WIRES.get(entry.wire, wire)
        if entry.role != "tool":
            break
    return wire


def is_malformed_answer(transcript: Transcript) -> bool:
    """Return True if the last message is a tool result without its call's id, or has parts that are not objects.

    Earlier messages need no check, because views ignore values of the wrong type. An answer marked as empty is never
    sent, so it may have any form.
    """
    last = transcript.last
    if last is None or last.role not in ANSWERS or last.condition == "empty":
        return False
    fields = json_bytes.fields(last.native)
    arrays = [fields[name] for name in _ARRAYS if fields.get(name, b"")[:1] == b"["]
    parts = [item for array in arrays for item in array_items(array)] if arrays else []
    return any(part[:1] != b"{" for part in parts) or (last.role == "tool" and not view_entry(last).call_id)


def find_open_calls(transcript: Transcript, known: Answer | None = None) -> tuple[ToolCallView, ...]:
    """Return the tool calls at the end of a transcript that have no result yet.

    If `known` is the last answer, its view is used, so that its JSON is not parsed again.
    """
    last = transcript.fresh[-1] if transcript.fresh else transcript.pack.last
    if last is None or last.role not in ANSWERS:
        return ()
    if known is not None and known.native is last.native:
        return known.view.calls
    answered = []
    end = len(transcript) - 1
    for i in range(end, -1, -1):
        entry = transcript[i] if i < end else last
        if entry.role == "tool":
            answered.append(view_entry(entry).call_id)
        elif entry.role == "assistant":
            view = known.view if known is not None and known.native is entry.native else view_entry(entry)
            calls = []
            for call in view.calls:
                # Some servers give two calls the same id: each still needs a result.
                if call.id in answered:
                    answered.remove(call.id)
                else:
                    calls.append(call)
            return tuple(calls)
        else:
            break
    return ()

"""Add messages in a provider's JSON to a transcript without a model call, for messages that were sent elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import InputError
from longtalk.tokens import Counter
from longtalk.transcript.pack import ANSWERS
from longtalk.transcript.transcript import Entry, Finish, Transcript, Turn, new_id, now
from longtalk.transfer.native_messages import NativeMessage, name_gemini_result, split_messages
from longtalk.turn.draft import add_token_counts, mark_interrupted
from longtalk.turn.message import System
from longtalk.wires import WIRES
from longtalk.wires.entries import mark_verbatim, view_entry
from longtalk.wires.neutral import system
from longtalk.wires.pairing import find_open_calls
from longtalk.wires.protocol import Wire
from longtalk.wires.views import ToolCallView

NativeMessages: TypeAlias = Iterable[Mapping[str, Any] | bytes | System]
"""Messages in a provider's JSON, each an object or its exact JSON, and system messages as `System`."""


def read_messages(messages: NativeMessages, wire: Wire) -> list[Entry]:
    """Return the entries of messages in the form of `wire`. Raises `InputError` if they could not have been said."""
    at = now()
    try:
        return [_make_entry(each, wire, at) for each in _split(messages, wire)]
    except (ValueError, RecursionError) as problem:
        raise InputError(f"These messages can't be added: {problem}.") from None


def append_messages(transcript: Transcript, entries: Sequence[Entry], counter: Counter) -> Transcript:
    """Return the transcript with the entries of these messages, as complete turns that no model answered.

    A turn begins with the first message after an answer. Tool results at the beginning answer the calls at the end of
    the transcript. Raise `InputError` for a result without its call, and for a call in the middle without a result.
    """
    calls = list(find_open_calls(transcript))
    try:
        entries = [_pair(entry, calls) for entry in entries]
    except ValueError as problem:
        raise InputError(f"These messages can't be added: {problem}.") from None
    entries = add_token_counts(entries, counter)
    first = next((i for i, entry in enumerate(entries) if entry.role != "tool"), len(entries))
    if first:
        # Results belong to the turn that made their calls.
        transcript = transcript.append_to_turn(transcript[-1].turn, entries[:first])
    groups = _group(entries[first:])
    if groups and transcript.turns and transcript.turns[-1].status == "running":
        transcript = mark_interrupted(transcript)
    for group in groups:
        finish: Finish = "calls" if calls and group is groups[-1] else "stop"
        turn = Turn(id=new_id(), status="complete", model="", started=now(), ended=now(), finish=finish)
        transcript = transcript.append_to_turn(turn.id, group).add(turn=turn)
    return transcript.revise()


def _split(messages: NativeMessages, wire: Wire) -> list[NativeMessage]:
    """Return the messages as a transcript stores them, with `System` messages in their places."""
    if isinstance(messages, str | bytes | Mapping | System) or not isinstance(messages, Iterable):
        raise InputError(
            f"`messages` must be a list of messages in the provider's JSON, not {type(messages).__name__}."
        )
    given = list(messages)
    if not given:
        raise InputError("`messages` is empty: pass at least one message.")
    found: list[NativeMessage] = []
    # Messages before and after a `System` message must not be merged into one.
    for ours, numbered in groupby(enumerate(given, 1), lambda each: isinstance(each[1], System)):
        several = list(numbered)
        if ours:
            found += [NativeMessage(number, "system", text=_read_system(each, number)) for number, each in several]
        else:
            found += split_messages([_encode(each, i) for i, each in several], wire, first=several[0][0])
    return found


def _read_system(message: Any, number: int) -> str:
    text = message.text
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"message {number} is a System message without text")
    return text


def _encode(message: object, number: int) -> bytes:
    """Return a message as JSON. A message that is already JSON is returned unchanged."""
    if isinstance(message, bytes):
        native = message.strip()
        try:
            native.decode()
        except UnicodeDecodeError:
            raise ValueError(f"message {number} is not UTF-8") from None
    elif isinstance(message, Mapping):
        try:
            native = json_bytes.encode(dict(message))
        except (TypeError, ValueError, RecursionError) as problem:
            raise ValueError(f"message {number} can't be written as JSON: {problem}") from None
    else:
        raise ValueError(f"message {number} must be an object, its JSON as bytes, or System(…), not {message!r:.80}")
    if native[:1] != b"{":
        raise ValueError(f"message {number} is not a JSON object")
    try:
        json_bytes.fields(native)
        json_bytes.value(native)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"message {number} is {problem}") from None
    return native


def _make_entry(message: NativeMessage, wire: Wire, at: int) -> Entry:
    if message.text:
        return system(message.text, at=at)
    return mark_verbatim(Entry(role=message.role, wire=wire.name, native=message.native, at=at, mark=message.mark))


def _pair(entry: Entry, calls: list[ToolCallView]) -> Entry:
    """Update the list of calls that wait for a result, and return the entry.

    Add the call's id to a result that lacks it.
    """
    if entry.role != "tool" and calls:
        raise ValueError(
            f"the result of tool call {calls[0].id!r} is missing before a message of the role {entry.role!r}; results "
            "directly follow their calls"
        )
    if entry.wire not in WIRES:
        return entry
    seen = view_entry(entry)
    if entry.role == "tool":
        given = seen.call_id
        found = next((call for call in calls if (call.id == given if given else call.name == seen.name)), None)
        if found is None:
            raise ValueError(
                f"a message is a result for the tool call {given or seen.name!r}, but no such call waits for a result"
            )
        calls.remove(found)
        return entry if given else msgspec.structs.replace(entry, native=name_gemini_result(entry.native, found.id))
    calls += seen.calls
    if len({call.id for call in calls}) < len(calls):
        raise ValueError(f"an answer has two tool calls with the id {calls[-1].id!r}")
    return entry


def _group(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Group the entries by turn: a turn begins with the first message after an answer."""
    groups: list[list[Entry]] = []
    for entry in entries:
        if not groups or (entry.role not in ANSWERS and groups[-1][-1].role in ANSWERS):
            groups.append([])
        groups[-1].append(entry)
    return groups

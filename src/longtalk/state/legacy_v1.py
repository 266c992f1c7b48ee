"""Read states of the earlier Go library: `{"version":1,"provider":"openai","processed_length":n,"messages":[…]}`.

The messages are OpenAI chat messages and keep their bytes; the other members of the JSON object are kept as a record.
Providers would reject a call without a result, or a result without a call, in every later request. Therefore such a
call gets a result saying that the outcome is unknown, and such a result becomes an event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from longtalk._util import json_bytes
from longtalk.transcript.pack import estimate_tokens
from longtalk.transcript.pack_index import MAX_ENTRIES
from longtalk.transcript.standing import Standing
from longtalk.transcript.transcript import Entry, Record, Transcript, Turn, Turns, link_entries
from longtalk.wires.entries import make_closing_result, mark_verbatim
from longtalk.wires.neutral import event
from longtalk.wires.openai_chat import wire as openai_chat

_ROLES = {"system", "developer", "user", "assistant", "tool"}


def read_version(state: bytes) -> int:
    """Return the version that a JSON state declares, or 0 if it declares none.

    Invalid JSON counts as version 1, because the reader of that version reports the problem.
    """
    try:
        envelope = json_bytes.fields(state)
    except ValueError:
        return 1
    try:
        version = json_bytes.value(envelope.get("version", b"0"))
    except ValueError:
        return 0
    return version if type(version) is int and version >= 0 else 0


def read(state: bytes) -> Transcript:
    """Return the transcript in a state of version 1.

    Raises `ValueError` if the state is invalid, `LookupError` if its provider is not OpenAI, and `OverflowError` if it
    has too many messages.
    """
    envelope = json_bytes.fields(state)
    provider = json_bytes.text(envelope.get("provider", b'"openai"'))
    if provider != "openai":
        raise LookupError(provider)
    messages = envelope.pop("messages", b"null")
    if messages == b"null":  # Go writes an empty list as null.
        messages = b"[]"
    count = len(json_bytes.lengths(messages))
    if count > MAX_ENTRIES:
        raise OverflowError(f"the state has {count} messages, and the limit is {MAX_ENTRIES}")
    entries: list[Entry] = []
    turns: list[Turn] = []
    for number, members in enumerate(_group_turns(json_bytes.items(messages))):
        # Ids are derived from positions, so that reading a state twice gives the same ids.
        turn = Turn(id=f"v1x{number}", status="complete", model="openai", started=0)
        linked = link_entries(entries[-1].id if entries else None, turn.id, 0, members)
        entries += [msgspec.structs.replace(entry, tokens=estimate_tokens(len(entry.native))) for entry in linked]
        turns.append(turn)
    origin = Record(kind="origin", entry=entries[-1].id if entries else "", at=0, data=json_bytes.build(envelope))
    return Transcript(fresh=tuple(entries), turns=Turns(fresh=tuple(turns)), records=Standing([origin]), revision=1)


def _group_turns(natives: Sequence[bytes]) -> list[list[Entry]]:
    """Group messages into turns, with calls and results paired so that every provider accepts them."""
    wire = openai_chat.WIRE
    turns: list[list[Entry]] = []
    pending: Counter[str] = Counter()
    orphans: list[Entry] = []

    def settle() -> None:
        """Close the open calls, then add the pending events, which must not come between a call and its results."""
        if turns:
            turns[-1] += [
                make_closing_result(wire, call, "Outcome unknown: no result was kept.", at=0)
                for call in pending.elements()
            ]
            turns[-1] += orphans
        pending.clear()
        orphans.clear()

    for native in natives:
        seen = wire.view(native)
        if seen.role not in _ROLES:
            raise ValueError(f"a message has the unknown role {seen.role!r}")
        if seen.role == "assistant" and not all(call.id for call in seen.calls):
            # A call without an id could never be paired with a result, so the answer is rebuilt.
            native = openai_chat.build_answer(native, None, None).native or native
            seen = wire.view(native)
        says = json_bytes.fields(native).get("content", b"null") != b"null"
        if seen.role != "tool":
            settle()
        if seen.role == "user" or not turns:
            turns.append([])
        if seen.role == "tool" and (not pending[seen.call_id] or not says):
            orphans.append(event(f"A tool result that can't be paired: {seen.text}", source="import", at=0))
            continue
        if seen.role == "tool":
            pending[seen.call_id] -= 1
        if seen.role == "assistant":
            pending.update(call.id for call in seen.calls)
            empty = openai_chat.build_answer(native, None, None).empty
        else:
            # A message without content, or with calls though its role is not the assistant, is kept but not sent.
            empty = not says or bool(seen.calls)
        entry = Entry(role=seen.role, wire=wire.name, native=native, at=0, mark="empty" if empty else "")
        turns[-1].append(mark_verbatim(entry, seen))
    settle()
    return turns

"""States of the earlier Go library: `{"version":1,"provider":"openai","processed_length":n,"messages":[…]}`.

The messages are OpenAI chat messages and are taken over byte for byte; what else the envelope holds is kept as
a record. A call that has no result, or a result that has no call, would be refused by every provider ever after:
the call is closed, the result is kept as an event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from longtalk import _json
from longtalk.pack import MAX_ENTRIES, guess
from longtalk.transcript import Entry, Record, Transcript, Turn, Turns, chain
from longtalk.wires import openai_chat
from longtalk.wires.base import closing, event

_ROLES = {"system", "developer", "user", "assistant", "tool"}


def version_of(state: bytes) -> int:
    """The version that a JSON state says it has; 0 when it says none."""
    try:
        envelope = _json.fields(state)
    except ValueError:
        return 1  # it begins like version 1: reading it says what is wrong
    try:
        version = _json.value(envelope.get("version", b"0"))
    except ValueError:
        return 0
    return version if type(version) is int and version >= 0 else 0


def read(state: bytes) -> Transcript:
    """Raises `ValueError` for what is no state, `LookupError` for another provider, `OverflowError` if too long."""
    envelope = _json.fields(state)
    provider = _json.text(envelope.get("provider", b'"openai"'))
    if provider != "openai":
        raise LookupError(provider)
    messages = envelope.pop("messages", b"null")
    if messages == b"null":  # how Go writes an empty list
        messages = b"[]"
    count = len(_json.lengths(messages))
    if count > MAX_ENTRIES:
        raise OverflowError(f"it has {count} messages, the limit is {MAX_ENTRIES}")
    entries: list[Entry] = []
    turns: list[Turn] = []
    for number, members in enumerate(_turns(_json.items(messages))):
        # Named by position, so that reading a state twice gives the same ids.
        turn = Turn(id=f"v1x{number}", status="complete", model="openai", started=0)
        linked = chain(entries[-1].id if entries else None, turn.id, 0, members)
        entries += [msgspec.structs.replace(entry, tokens=guess(len(entry.native))) for entry in linked]
        turns.append(turn)
    origin = Record(kind="origin", entry=entries[-1].id if entries else "", at=0, data=_json.build(envelope))
    return Transcript(fresh=tuple(entries), turns=Turns(fresh=tuple(turns)), records=(origin,), revision=1)


def _turns(natives: Sequence[bytes]) -> list[list[Entry]]:
    """The messages by turn, in an order that every provider accepts."""
    wire = openai_chat.WIRE
    turns: list[list[Entry]] = []
    pending: Counter[str] = Counter()
    orphans: list[Entry] = []

    def settle() -> None:
        """Close the calls that are open. Events can't stand between a call and its results, so they follow here."""
        if turns:
            turns[-1] += [
                closing(wire, call, "Outcome unknown: no result was kept.", at=0) for call in pending.elements()
            ]
            turns[-1] += orphans
        pending.clear()
        orphans.clear()

    for native in natives:
        seen = wire.view(native)
        if seen.role not in _ROLES:
            raise ValueError(f"a message has the role {seen.role!r}")
        if seen.role == "assistant" and not all(call.id for call in seen.calls):
            # Without an id no result could ever be paired with its call.
            native = openai_chat.finished(native, None, None).native or native
            seen = wire.view(native)
        says = _json.fields(native).get("content", b"null") != b"null"
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
            empty = openai_chat.finished(native, None, None).empty
        else:
            # Nobody but an assistant calls, and nobody says nothing: it is kept, and not sent.
            empty = not says or bool(seen.calls)
        turns[-1].append(Entry(role=seen.role, wire=wire.name, native=native, at=0, mark="empty" if empty else ""))
    settle()
    return turns

"""States of the earlier Go library: `{"version":1,"provider":"openai","processed_length":n,"messages":[…]}`.

The messages are OpenAI chat messages and are taken over byte for byte; what else the envelope holds is kept as
a record. A call that has no result, or a result that has no call, would be refused by every provider ever after:
the call is closed, the result is kept as an event.
"""

from __future__ import annotations

import msgspec

from longtalk import _json
from longtalk.transcript import Entry, Record, Transcript, Turn, chain
from longtalk.wires import openai_chat
from longtalk.wires.base import closing, event

_ROLES = {"system", "developer", "user", "assistant", "tool"}


def version_of(state: bytes) -> int:
    """The version that a JSON state says it has; 0 when it says none."""
    try:
        version = _json.value(_json.fields(state).get("version", b"0"))
    except ValueError:
        return 1  # it begins like version 1: reading it says what is wrong
    return version if type(version) is int and version >= 0 else 0


def read(state: bytes) -> Transcript:
    """Raises `ValueError` for what is not such a state, `LookupError` for another provider."""
    envelope = _json.fields(state)
    provider = _json.text(envelope.get("provider", b'"openai"'))
    if provider != "openai":
        raise LookupError(provider)
    transcript = Transcript(revision=1)
    turns: list[list[Entry]] = []
    pending: list[str] = []
    wire = openai_chat.WIRE
    for native in _json.items(envelope.pop("messages", b"[]")):
        seen = wire.view(native)
        if seen.role not in _ROLES:
            raise ValueError(f"a message has the role {seen.role!r}")
        if seen.role != "tool" and pending:
            turns[-1] += [closing(wire, call, "Outcome unknown: no result was kept.", at=0) for call in pending]
            pending = []
        if seen.role == "user" or not turns:
            turns.append([])
        if seen.role == "tool" and seen.call_id not in pending:
            turns[-1].append(event(f"A tool result without its call: {seen.text}", source="import", at=0))
            continue
        if seen.role == "tool":
            pending.remove(seen.call_id)
        pending += [call.id for call in seen.calls]
        turns[-1].append(Entry(role=seen.role, wire=wire.name, native=native, at=0))
    if pending:
        turns[-1] += [closing(wire, call, "Outcome unknown: no result was kept.", at=0) for call in pending]
    for number, entries in enumerate(turns):
        # Named by position, so that reading a state twice gives the same ids.
        turn = f"v1x{number}"
        transcript = transcript.add(
            chain(transcript.head, turn, 0, entries), turn=Turn(id=turn, status="complete", model="openai", started=0)
        )
    origin = Record(kind="origin", entry=transcript.head or "", at=0, data=_json.build(envelope))
    return msgspec.structs.replace(transcript, records=(origin,))

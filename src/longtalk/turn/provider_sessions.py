"""Conversations that a provider keeps itself, by an id.

After each answer of such a provider its handle is kept as a record, with the place that it stands at. The next request
goes on from there and carries only what came since. A handle is used while that place is on the path (records are read
from the path alone), in the epoch that it was made in, for the same account (on the same machine, for programs), and as
long as the provider says that nobody has gone on from it. Otherwise the provider is told everything anew, as the policy
would send it to any other: the conversation is always whole here.
"""

from __future__ import annotations

import msgspec

from longtalk._util import json_bytes
from longtalk.context.epochs import Epoch
from longtalk.transcript.pack import ANSWERS
from longtalk.transcript.records import read_latest
from longtalk.transcript.transcript import Transcript
from longtalk.wires.protocol import Handle, Wire

_MOST = 16
"""So many keepers are remembered: each machine is one."""
_LONGEST = 256
"""So many characters an id may have."""


class ProviderSession(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a provider has a conversation."""

    handle: Handle
    place: int
    """So many entries of the conversation it has, in the form that they were sent in."""
    epoch: int = 0
    """Where the epoch began that those were sent in."""


def find(transcript: Transcript, session_key: str, wire: Wire, epoch: Epoch) -> ProviderSession | str:
    """Where the provider can go on from; else why it can't, in words. Nothing is said about a new conversation."""
    known = _known(transcript)
    held = known.get(session_key)
    if held is None:
        others = any(transcript[i].role in ANSWERS for i in range(len(transcript)))
        return "it has not heard it so far" if others or known else ""
    # An answer stands behind what its epoch began with, and before what is to be answered now.
    fits = epoch.start < held.place < transcript.size and 0 < len(held.handle.id) <= _LONGEST
    if not fits or held.epoch != epoch.start:
        return "what is sent of it has changed"
    since = (transcript[i] for i in range(transcript.index_of(held.place), len(transcript)))
    answers = [] if wire.accepts_foreign_answers else [entry.wire for entry in since if entry.role in ANSWERS]
    if answers:
        return "it went on elsewhere" if set(answers) - {wire.name} else "its last answer was cut off"
    return held


def keep(transcript: Transcript, session_key: str, held: ProviderSession) -> Transcript:
    """A transcript that knows how far a provider has it."""
    return _with(transcript, [*_others(transcript, session_key)[1 - _MOST :], (session_key, held)])


def drop(transcript: Transcript, session_key: str) -> Transcript:
    """A transcript of which a provider knows nothing any more."""
    return _with(transcript, _others(transcript, session_key))


def _known(transcript: Transcript) -> dict[str, ProviderSession]:
    return read_latest(transcript, "handle", dict[str, ProviderSession]) or {}


def _others(transcript: Transcript, session_key: str) -> list[tuple[str, ProviderSession]]:
    return [(name, held) for name, held in _known(transcript).items() if name != session_key]


def _with(transcript: Transcript, known: list[tuple[str, ProviderSession]]) -> Transcript:
    return transcript.add_record("handle", json_bytes.encode(dict(known)), replace=True)

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
    known = _read_sessions(transcript)
    session = known.get(session_key)
    if session is None:
        others = any(transcript[i].role in ANSWERS for i in range(len(transcript)))
        return "it has not heard it so far" if others or known else ""
    # An answer is after what its epoch began with, and before what is to be answered now.
    fits = epoch.start < session.place < transcript.size and 0 < len(session.handle.id) <= _LONGEST
    if not fits or session.epoch != epoch.start:
        return "what is sent of it has changed"
    since = (transcript[i] for i in range(transcript.index_of(session.place), len(transcript)))
    answers = [] if wire.accepts_foreign_answers else [entry.wire for entry in since if entry.role in ANSWERS]
    if answers:
        return "it went on elsewhere" if set(answers) - {wire.name} else "its last answer was cut off"
    return session


def keep(transcript: Transcript, session_key: str, session: ProviderSession) -> Transcript:
    """Return the transcript with a provider's session recorded."""
    return _record_sessions(transcript, [*_list_others(transcript, session_key)[1 - _MOST :], (session_key, session)])


def drop(transcript: Transcript, session_key: str) -> Transcript:
    """Return the transcript without a provider's session."""
    return _record_sessions(transcript, _list_others(transcript, session_key))


def _read_sessions(transcript: Transcript) -> dict[str, ProviderSession]:
    return transcript.records.read_latest("handle", dict[str, ProviderSession]) or {}


def _list_others(transcript: Transcript, session_key: str) -> list[tuple[str, ProviderSession]]:
    return [(name, session) for name, session in _read_sessions(transcript).items() if name != session_key]


def _record_sessions(transcript: Transcript, sessions: list[tuple[str, ProviderSession]]) -> Transcript:
    return transcript.add_record("handle", json_bytes.encode(dict(sessions)), replace=True)

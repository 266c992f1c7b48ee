"""Conversations that a provider keeps itself, by an id.

After each answer, the provider's handle is recorded with its position. The next request continues from there and sends
only later entries. A handle is used only if its position is on the path of the branch, in the epoch in which it was
made, for the same account (for programs: on the same machine), and while the provider says that no other client has
continued from it. Otherwise the whole context is sent again, as to any other provider: the transcript is complete.
"""

from __future__ import annotations

import msgspec

from longtalk._util import json_bytes
from longtalk.context.epochs import Epoch
from longtalk.transcript.pack import ANSWERS
from longtalk.transcript.transcript import Transcript
from longtalk.wires.protocol import Handle, Wire

_MOST = 16
"""The maximum number of sessions that a conversation remembers."""
_LONGEST = 256
"""The maximum number of characters of an id."""


class ProviderSession(msgspec.Struct, frozen=True, omit_defaults=True):
    """A conversation at a provider, and how much of the transcript it contains."""

    handle: Handle
    place: int
    """The number of entries that the provider has."""
    epoch: int = 0
    """The start of the epoch in which they were sent."""


def find(transcript: Transcript, session_key: str, wire: Wire, epoch: Epoch) -> ProviderSession | str:
    """Return the resumable session, or the reason why there is none; empty for a new conversation."""
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

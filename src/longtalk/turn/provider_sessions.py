"""Sessions: copies of a conversation that a provider stores itself, under an id.

After each answer, the provider's handle is recorded with its position. The next request resumes the session and sends
only later entries. A handle is used only if its position is on the path of the branch and in the epoch in which the
handle was recorded, if the account is the same (for programs: also the machine), and if the provider reports that no
other client has continued the session. Otherwise the whole context is sent again, as to any other provider.
"""

from __future__ import annotations

import msgspec

from longtalk._util import json_bytes
from longtalk.context.epochs import Epoch
from longtalk.transcript.pack import ANSWERS
from longtalk.transcript.transcript import Transcript
from longtalk.wires.protocol import Handle, Wire

_MOST = 16
"""The maximum number of sessions that a conversation records."""
_LONGEST = 256
"""The maximum length of a session id, in characters."""


class ProviderSession(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session at a provider, and the number of entries that it contains."""

    handle: Handle
    place: int
    """The number of entries that the provider already has."""
    epoch: int = 0
    """The start of the epoch in which these entries were sent."""


def find(transcript: Transcript, session_key: str, wire: Wire, epoch: Epoch) -> ProviderSession | str:
    """Return the session to resume, or the reason why there is none; "" if there was never a session."""
    known = _read_sessions(transcript)
    session = known.get(session_key)
    if session is None:
        others = any(transcript[i].role in ANSWERS for i in range(len(transcript)))
        return "it has not heard it so far" if others or known else ""
    # The session's last answer must come after the start of its epoch, and before the entries to be answered now.
    fits = epoch.start < session.place < transcript.size and 0 < len(session.handle.id) <= _LONGEST
    if not fits or session.epoch != epoch.start:
        return "what is sent of it has changed"
    since = (transcript[i] for i in range(transcript.index_of(session.place), len(transcript)))
    answers = [] if wire.accepts_foreign_answers else [entry.wire for entry in since if entry.role in ANSWERS]
    if answers:
        return "it went on elsewhere" if set(answers) - {wire.name} else "its last answer was cut off"
    return session


def keep(transcript: Transcript, session_key: str, session: ProviderSession) -> Transcript:
    """Return the transcript with a provider's session recorded under this key."""
    return _record_sessions(transcript, [*_list_others(transcript, session_key)[1 - _MOST :], (session_key, session)])


def drop(transcript: Transcript, session_key: str) -> Transcript:
    """Return the transcript without the session that is recorded under this key."""
    return _record_sessions(transcript, _list_others(transcript, session_key))


def _read_sessions(transcript: Transcript) -> dict[str, ProviderSession]:
    return transcript.records.read_latest("handle", dict[str, ProviderSession]) or {}


def _list_others(transcript: Transcript, session_key: str) -> list[tuple[str, ProviderSession]]:
    return [(name, session) for name, session in _read_sessions(transcript).items() if name != session_key]


def _record_sessions(transcript: Transcript, sessions: list[tuple[str, ProviderSession]]) -> Transcript:
    return transcript.add_record("handle", json_bytes.encode(dict(sessions)), replace=True)

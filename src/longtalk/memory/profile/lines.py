"""The lines of a profile: from which conversations they come, and how they are merged and rendered.

A profile is not stored. It is made from the brief records of the owner's conversations, which have the lines that cards
have added to the profile, and from one `OwnerRecord` with what the app has changed. So a line is gone when the last
conversation that states it is deleted, made private, or loses the line by a redaction.

A turn reads the profile once, and carries it in its transcript as a record of the kind `profile`, which no store gets.
The head of an epoch names the lines that it contains by digests of their texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk._util.checks import PROFILE_ID
from longtalk.errors import CorruptStore
from longtalk.memory.brief.apply import list_line_ids
from longtalk.memory.brief.budget import fit_budget
from longtalk.memory.brief.lines import Line, make_line_id, normalize, render_line, sort_lines
from longtalk.memory.profile.config import Profile
from longtalk.memory.summary import Summary
from longtalk.tokens import Counter
from longtalk.transcript.standing import Record
from longtalk.transcript.transcript import Transcript

KIND = "profile"
"""The record kind of the profile in the transcript of a turn."""
PROFILE_TAG = "memory"
"""The name of the tag around a profile in a request."""
HEADING = "About the user, from all of their conversations:"
"""The line above the lines of a profile in a request."""
PRIVATE = "private"
"""The record kind that says whether a conversation is private. It is attached before the first entry."""
OWNER_META = "profile"
"""Where the metadata of a conversation has the `OwnerRecord`."""
MAX_LINES = 200
"""The maximum number of lines that are merged into a profile; of more, those stated last."""

_replace = msgspec.structs.replace


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a line of a profile was stated."""

    conversation: str
    branch: str
    entry: str
    """The id of the entry that the line came from."""
    at: int
    """When the line was first stated there, in milliseconds."""


class ProfileLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a profile."""

    id: str
    """A short id, which stays the same when the app changes the text."""
    field: str
    text: str
    at: int
    """When the line was first stated, in milliseconds."""
    seen: int
    """When the line was last stated, in milliseconds."""
    sources: tuple[Source, ...] = ()
    """The entries that the line came from, newest first; empty if the app wrote the line."""
    is_edited: bool = False
    """Whether the app has replaced the text that a card stated."""


class Contribution(msgspec.Struct, frozen=True):
    """What one branch of a conversation contributes to the profile."""

    conversation: str
    branch: str
    lines: tuple[Line, ...] = ()
    replaced: Mapping[str, int] = {}
    """The ids of lines that the model has removed here although other conversations state them, each with the time."""


class OwnerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the app has changed in the profile of an owner."""

    lines: tuple[Line, ...] = ()
    """The lines that the app wrote."""
    revoked: tuple[str, ...] = ()
    """Ids of lines that may not come back, oldest first."""
    edits: dict[str, str] = {}
    """The texts that replace those of lines from cards, by the id of the line."""
    sources: tuple[str, ...] = ()
    """The ids of conversations that state lines, or have done so, in the order in which that was noticed."""

    def has_changes_of(self, other: OwnerRecord) -> bool:
        """Return True if replacing `other` by this record undoes nothing that the app has changed there."""
        gone, seen = frozenset(self.revoked), {line.id: line.seen for line in self.lines}
        return (
            gone.issuperset(other.revoked)
            and gone.union(self.edits).issuperset(other.edits)
            and all(line.id in gone or seen.get(line.id, -1) >= line.seen for line in other.lines)
        )


def parse_owner_record(meta: Mapping[str, Any]) -> OwnerRecord:
    """Return the record in the metadata of a conversation; an empty one if there is none."""
    try:
        return msgspec.convert(meta.get(OWNER_META, {}), OwnerRecord)
    except msgspec.ValidationError as problem:
        # An empty record in its place would bring back what was revoked.
        raise CorruptStore(
            f"The owner's changes of the profile can't be read ({problem}). Restore the store from a backup, or delete "
            f"the conversation {PROFILE_ID!r} to give them up."
        ) from problem


class SentLine(msgspec.Struct, frozen=True, array_like=True):
    """A line of the profile as a request contains it."""

    id: str
    said: str
    """The id of the text, whatever its field."""
    text: str
    """The rendered line."""
    is_own: bool = False
    """Whether the conversation itself states the line."""

    @property
    def digest(self) -> str:
        """A digest of the rendered line."""
        return hashlib.blake2b(self.text.encode("utf-8", "replace"), digest_size=8).hexdigest()


class TurnProfile(msgspec.Struct, frozen=True):
    """The profile as one turn sends it."""

    lines: tuple[SentLine, ...] = ()

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests of all lines, in order."""
        return tuple([line.digest for line in self.lines])

    def render(self, digests: Collection[str]) -> str:
        """Return the lines with these digests as text."""
        lines = [line.text for line in self.lines if line.digest in digests]
        return "\n".join((HEADING, *lines)) if lines else ""


def merge_lines(contributions: Iterable[Contribution], app: OwnerRecord) -> list[ProfileLine]:
    """Return the lines of a profile, oldest first: those of the conversations and those of the app."""
    contributions = list(contributions)
    replaced: dict[str, int] = {}
    for each in contributions:
        for line_id, at in each.replaced.items():
            replaced[line_id] = max(at, replaced.get(line_id, 0))
    found: dict[str, ProfileLine] = {}
    sources: dict[str, dict[tuple[str, str], Source]] = {}
    revoked = frozenset(app.revoked)
    for each in contributions:
        for line in each.lines:
            if (revoked and revoked.intersection(list_line_ids(line))) or line.seen < replaced.get(line.id, 0):
                continue
            source = Source(conversation=each.conversation, branch=each.branch, entry=line.entry, at=line.at)
            # Branches of a conversation share the entries before they fork.
            sources.setdefault(line.id, {}).setdefault((source.conversation, source.entry), source)
            known = found.get(line.id)
            text = app.edits.get(line.id, line.text)
            if known is None:
                found[line.id] = ProfileLine(
                    id=line.id,
                    field=line.field,
                    text=text,
                    at=line.at,
                    seen=line.seen,
                    is_edited=line.id in app.edits,
                )
                continue
            found[line.id] = _replace(
                known,
                text=text if line.seen >= known.seen else known.text,
                at=min(known.at, line.at),
                seen=max(known.seen, line.seen),
            )
    for line_id, stated in sources.items():
        newest_first = tuple(sorted(stated.values(), key=lambda each: -each.at))
        found[line_id] = _replace(found[line_id], sources=newest_first)
    for line in app.lines:
        found[line.id] = ProfileLine(id=line.id, field=line.field, text=line.text, at=line.at, seen=line.seen)
    return sorted(found.values(), key=lambda line: (line.at, line.id))


def list_newest(lines: Iterable[ProfileLine]) -> list[ProfileLine]:
    """Return the lines that may be sent: those stated last, oldest first."""
    newest = sorted(lines, key=lambda line: line.seen)[-MAX_LINES:]
    return sorted(newest, key=lambda line: (line.at, line.id))


def fit_profile(lines: Iterable[ProfileLine], config: Profile, counter: Counter, conversation: str) -> TurnProfile:
    """Return the lines that fit the budget of a profile, as requests of this conversation contain them.

    `lines` are those that `list_newest` returns.
    """
    lines = list(lines)
    known = {name for name in {line.field for line in lines} if config.schema.find(name) is not None}
    by_id = {line.id: line for line in lines if line.field in known}
    as_lines = [Line(line.id, line.field, line.text, at=line.at, seen=line.seen) for line in by_id.values()]
    fitting, _ = fit_budget(as_lines, config.brief, counter)
    keys = {field.name: field.key for field in config.schema.fields}
    return TurnProfile(
        tuple(
            SentLine(
                line.id,
                make_line_id("", normalize(line.text)),
                render_line(keys[line.field], line.text, line.shown),
                any(source.conversation == conversation for source in by_id[line.id].sources),
            )
            for line in sort_lines(fitting, config.schema)
        )
    )


def render_unsent_lines(profile: TurnProfile, head: Summary | None) -> str:
    """Return the lines from other conversations that a request with this head lacks; empty if it lacks none."""
    sent = head.profile if head is not None else ()
    return profile.render([line.digest for line in profile.lines if not line.is_own and line.digest not in sent])


def with_turn_profile(transcript: Transcript, profile: TurnProfile | None) -> Transcript:
    """Return the transcript with the profile for its next turn in place of the previous one; None removes it."""
    if profile is None and all(record.kind != KIND for record in transcript.records):
        return transcript
    others = [record for record in transcript.records if record.kind != KIND]
    new = [] if profile is None else [Record(KIND, "", 0, json_bytes.encode(profile))]
    return transcript.with_records([*new, *others])


def read_turn_profile(transcript: Transcript) -> TurnProfile:
    """Return the profile that the turn of a transcript has read; an empty one if it has read none."""
    return transcript.records.read_latest(KIND, TurnProfile) or TurnProfile()


def is_private(records: Iterable[Record]) -> bool:
    """Return True if the newest of these records that says so makes a conversation private. They are oldest first."""
    marks = [record.data for record in records if record.kind == PRIVATE]
    return bool(marks) and marks[-1] == b"true"


def make_private_record(at: int, *, private: bool) -> Record:
    """Return the record that makes a conversation private, or ends that."""
    return Record(PRIVATE, "", at, b"true" if private else b"false")

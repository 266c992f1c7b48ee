"""The keys of a conversation in Redis, and functions that decode its branches, segments and other stored values.

Data that can't be decoded raises `Damaged`. Nothing is skipped, and no exception of a codec reaches the caller.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import msgspec

from longtalk.errors import InputError, StoreError
from longtalk.stores._paths import Span, is_on_path, list_head_records, trace_path
from longtalk.stores._rows import pack_from_rows
from longtalk.stores.base import BranchHead, ConversationInfo, Holder, KeyedRequest, Lease, PlacedRecord
from longtalk.stores.redis.scripts import MARK, PARTS
from longtalk.transcript.pack import Entry, Pack, checksum
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Record, Turn

encode = msgspec.msgpack.Encoder().encode
_holder_of = msgspec.msgpack.Decoder(Holder).decode
_Row = tuple[str, int, str | None, str, str, str, int, str, str, int, bytes, int]
"""A stored entry: turn, number in the turn, parent, kind, role, wire, at, mark, bound, tokens, native, checksum."""
_row_of = msgspec.msgpack.Decoder(_Row).decode
_request_of = msgspec.msgpack.Decoder(tuple[str, str, str]).decode

_Told = ParamSpec("_Told")
_Read = TypeVar("_Read")


class Damaged(StoreError):
    """The error for stored data that is missing or can't be decoded. `what` describes the damage, without advice."""

    def __init__(self, what: str) -> None:
        super().__init__(f"A Redis store is damaged: {what}. `verify` says more, and a backup has it.")
        self.what = what


class Gone(Exception):
    """The error for a conversation that was deleted while it was being read."""


def _reads(what: str) -> Callable[[Callable[_Told, _Read]], Callable[_Told, _Read]]:
    """Return a decorator for functions that decode `what`. If such a function fails, `Damaged` is raised."""

    def made(read: Callable[_Told, _Read]) -> Callable[_Told, _Read]:
        @wraps(read)
        def reading(*args: _Told.args, **kwargs: _Told.kwargs) -> _Read:
            try:
                return read(*args, **kwargs)
            except (AttributeError, LookupError, TypeError, ValueError) as problem:
                said = problem if isinstance(problem, ValueError) else repr(problem)
                raise Damaged(f"{what} can't be read: {said}") from None

        return reading

    return made


class Keys:
    """The keys of a conversation in Redis. The part in braces determines the slot, so all keys are in one slot."""

    __slots__ = ("_root", "all", "c", "f", "g", "h", "m", "q", "r", "t", "tag", "x")

    def __init__(self, prefix: str, owner: str, conversation: str) -> None:
        # Owner and id may be any text, even with braces. Their encoded lengths keep different pairs apart.
        try:
            name = encode((owner, conversation))
        except UnicodeEncodeError as problem:
            raise InputError(f"{problem.object[:60]!r} can't be a name: it is not Unicode.") from None
        self.tag = hashlib.blake2b(name, digest_size=16).hexdigest()
        self._root = f"{prefix}:{{{self.tag}}}:"
        self.all = [f"{self._root}{part}".encode() for part in PARTS]
        self.c, self.t, self.m, self.g, self.f, self.q, self.r, self.h, self.x = self.all

    def entries(self, segment: int) -> bytes:
        """Return the key of the list that contains the entries of a segment."""
        return f"{self._root}s:{segment}".encode()


class Segment(NamedTuple):
    """Entries that a branch added after the first `start` entries of the path that ends in segment `up` (0: none)."""

    number: int
    up: int
    start: int
    forked: int
    """The last position at which another segment branches off this one, or -1 if none does."""
    own: bool
    """Whether the segment has a record that only the segment's own branch may see."""


class Branch(NamedTuple):
    """A branch, decoded from the fields that are stored for it."""

    name: str
    revision: int
    segment: int
    size: int
    entry: str | None
    turn: str
    records: list[int]
    """The numbers of the records in the branch's head."""
    token: int
    lease: Lease | None
    updated: int
    marks: bytes
    """The marks of the branch's newest commits, concatenated."""

    def made(self, mark: bytes) -> bool:
        """Return whether the commit with this mark is among the branch's newest commits."""
        return mark in (self.marks[i : i + MARK] for i in range(0, len(self.marks), MARK))


class About(NamedTuple):
    """The location and kind of a record."""

    number: int
    segment: int
    position: int
    kind: str


class Tree:
    """The branches and segments of a conversation, decoded from the conversation's hash."""

    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        self._fields = fields
        self.born = fields[b"born"]
        self.version = fields[b"version"]
        self.segments: dict[int, Segment] = {}
        for name, value in fields.items():
            if name.startswith(b"S:"):
                number = int(name[2:])
                up, start = map(int, value.split(b":"))
                if not 0 <= up < number:
                    raise ValueError(f"the segment {number} follows {up}")
                forked = int(fields.get(b"F:%d" % number, -1))
                self.segments[number] = Segment(number, up, start, forked, b"O:%d" % number in fields)
        names = sorted(name[2:].decode() for name in fields if name.startswith(b"v:"))
        self.branches = {name: self._branch(name) for name in names}
        needed = {*(branch.segment for branch in self.branches.values()), *(each.up for each in self.segments.values())}
        if missing := needed - self.segments.keys() - {0}:
            raise ValueError(f"the segment {min(missing)} is missing")

    @_reads("a conversation")
    def number(self, name: str) -> int:
        """Return a field of the conversation's hash as a number, or 0 if the field isn't set."""
        return int(self._fields.get(name.encode(), 0))

    def text(self, name: str) -> bytes:
        """Return a field of the conversation's hash, or empty bytes if the field isn't set."""
        return self._fields.get(name.encode(), b"")

    def _branch(self, name: str) -> Branch:
        def field(letter: bytes) -> bytes:
            return self._fields[letter + b":" + name.encode()]

        return Branch(
            name=name,
            revision=int(field(b"v")),
            segment=int(field(b"s")),
            size=int(field(b"n")),
            entry=field(b"e").decode() or None,
            turn=field(b"u").decode(),
            records=[*map(int, field(b"p").split())],
            token=int(field(b"k")),
            lease=lease_of(field(b"l"), field(b"i"), field(b"j")),
            updated=int(field(b"a")),
            marks=field(b"w"),
        )

    def path(self, segment: int, size: int) -> list[Span[int]]:
        """Return the path of `size` entries that ends in a segment, from the root on."""
        return trace_path(
            segment or None, size, lambda each: (self.segments[each].start, self.segments[each].up or None)
        )

    def path_of(self, branch: str) -> list[Span[int]]:
        """Return the path of a branch, from the root on. The path is empty if the branch doesn't exist."""
        found = self.branches.get(branch)
        return self.path(found.segment, found.size) if found else []

    def head(self, branch: Branch, turn: Turn | None) -> BranchHead:
        """Return the head of a branch, without its records."""
        return BranchHead(
            branch=branch.name,
            revision=branch.revision,
            size=branch.size,
            entry=branch.entry,
            token=branch.token,
            lease=branch.lease,
            turn=turn,
            records=(),
            created=self.number("created"),
            updated=branch.updated,
        )

    def info(self, id: str) -> ConversationInfo:  # noqa: A002
        """Return the facts about the conversation that a list of conversations shows."""
        return ConversationInfo(
            id=id,
            created=self.number("created"),
            updated=self.number("updated"),
            entries=self.number("entries"),
            branches=tuple(self.branches),
            meta=meta_of(self.text("meta")),
        )


@_reads("a conversation")
def tree_of(fields: Sequence[bytes]) -> Tree | None:
    """Decode the hash of a conversation. Return None if the hash is empty: then the conversation doesn't exist."""
    return Tree(dict(zip(fields[::2], fields[1::2], strict=True))) if fields else None


# Values


turn_of = _reads("a turn")(msgspec.msgpack.Decoder(Turn).decode)
record_of = _reads("a record")(msgspec.msgpack.Decoder(Record).decode)
name_of = _reads("a name")(bytes.decode)


@_reads("when a conversation was changed")
def time_of(data: bytes) -> int:
    """Decode the time of a conversation's last change."""
    return int(data)


@_reads("data of an app's own")
def meta_of(data: bytes) -> dict[str, Any]:
    """Decode an app's metadata, which must be a JSON object."""
    held = json.loads(data)
    if not isinstance(held, dict):
        raise TypeError(type(held).__name__)
    return held


def lease_of(holder: bytes, until: bytes, token: bytes) -> Lease | None:
    """Decode a lease. Return None if the lease has no holder."""
    return Lease(_holder_of(holder), int(until), int(token)) if holder else None


@_reads("a branch")
def head_of(branch: str, found: Sequence[Any]) -> BranchHead:
    """Decode the head of a branch from a script's reply."""
    revision, _, _, size, entry, turn, token, holder, until, held, updated, created, abouts, records = found
    return BranchHead(
        branch=branch,
        revision=int(revision),
        size=int(size),
        entry=entry.decode() or None,
        token=int(token),
        lease=lease_of(holder, until, held),
        turn=turn_of(turn) if turn else None,
        records=tuple(
            [
                PlacedRecord(record_of(record), int(about.split(b":", 2)[1]))
                for about, record in zip(abouts, records, strict=True)
            ]
        ),
        created=int(created),
        updated=int(updated),
    )


def row_in(entry: Entry, number: int) -> bytes:
    """Return an entry and its checksum, encoded for storage."""
    return encode(
        (
            *(entry.turn, number, entry.parent, entry.kind, entry.role, entry.wire, entry.at, entry.mark, entry.bound),
            *(entry.tokens, entry.native, checksum(entry.native)),
        )
    )


@_reads("an entry")
def rows_of(values: Sequence[bytes]) -> list[Any]:
    """Decode stored entries into rows. The last value of each row is the checksum."""
    return [_row_of(value) for value in values]


def pack_of(values: Sequence[bytes]) -> Pack:
    """Decode stored entries into a pack."""
    return pack_from_rows([row[:-1] for row in rows_of(values)])


def id_of(value: bytes) -> str:
    """Return the id of an encoded entry."""
    turn, number, *_ = rows_of([value])[0]
    return f"{turn}-{number}"


def request_in(request: KeyedRequest, turn: str, branch: str) -> bytes:
    """Return a request with an idempotency key, its turn, and the branch on which it was made, encoded for storage."""
    return encode((turn, request.body, branch))


@_reads("a request")
def request_of(key: str, value: bytes) -> tuple[KeyedRequest, str, str, int]:
    """Decode a request with an idempotency key.

    Returns the request, its turn, its branch, and the position at which the turn began.
    """
    position, _, data = value.partition(b":")
    turn, body, branch = _request_of(data)
    return KeyedRequest(key, body), turn, branch, int(position)


@_reads("the place of a record")
def about_of(number: bytes, value: bytes) -> About:
    """Decode the location and kind of a record."""
    segment, position, kind = value.split(b":", 2)
    return About(int(number), int(segment), int(position), kind.decode())


def abouts_of(fields: Sequence[bytes]) -> list[About]:
    """Decode the locations and kinds of all records, in the order in which the records were created."""
    return sorted(about_of(number, value) for number, value in zip(fields[::2], fields[1::2], strict=True))


def shown_on(abouts: Sequence[About], path: Sequence[Span[int]]) -> list[int]:
    """Return the numbers of the records that belong to the head of a branch with this path."""
    there = [about for about in abouts if is_on_path(path, about.segment, about.position)]
    return [about.number for about in list_head_records(there, lambda about: about.kind)]


@_reads("where a turn is")
def runs_of(value: bytes | None) -> list[tuple[int, int, int]]:
    """Decode the locations of a turn's entries.

    Returns segment, position and number of the first entry of each run of consecutive entries.
    """
    split = [run.split(b":") for run in (value or b"").split()]
    return [(int(segment), int(position), int(number)) for segment, position, number in split]


@_reads("where a turn begins")
def begun_of(value: bytes) -> tuple[int, int, str]:
    """Decode the location at which a turn begins. Return the segment, the position and the turn's id."""
    segment, position, turn = value.split(b":", 2)
    return int(segment), int(position), turn.decode()


def is_alone(placed: PlacedRecord) -> bool:
    """Return whether a record may be seen only by the branch on which it was written."""
    return kind_of(placed.record.kind).own_branch_only

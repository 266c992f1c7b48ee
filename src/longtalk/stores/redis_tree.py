"""A conversation in Redis as it is read: its keys, its branches and segments, and values from their bytes.

What can't be read is `Damaged`, whatever it is: nothing is passed over, and no error of a codec gets out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import msgspec

from longtalk.errors import InputError, StoreError
from longtalk.pack import Entry, Pack, checksum
from longtalk.stores.base import ALONE, REPLACED, Head, Holder, Lease, Placed, Request, Summary
from longtalk.stores.redis_scripts import MARK, PARTS
from longtalk.stores.rows import from_rows
from longtalk.transcript import Record, Turn

encode = msgspec.msgpack.Encoder().encode
_holder_of = msgspec.msgpack.Decoder(Holder).decode
_Row = tuple[str, int, str | None, str, str, str, int, str, str, int, bytes, int]
"""Turn and number, parent, kind, role, wire, at, mark, bound, tokens, native, checksum."""
_row_of = msgspec.msgpack.Decoder(_Row).decode
_request_of = msgspec.msgpack.Decoder(tuple[str, str, str]).decode

_Told = ParamSpec("_Told")
_Read = TypeVar("_Read")


class Damaged(StoreError):
    """What was read can't be what was written. `what` says so without the remedy."""

    def __init__(self, what: str) -> None:
        super().__init__(f"A Redis store is damaged: {what}. `verify` says more, and a backup has it.")
        self.what = what


class Gone(Exception):
    """What a tree says is not there any more: it was deleted meanwhile."""


def _reads(what: str) -> Callable[[Callable[_Told, _Read]], Callable[_Told, _Read]]:
    """Make a function that reads something say `Damaged` where it can't."""

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
    """The keys of one conversation. What is in braces says in which slot of a cluster all of them are."""

    __slots__ = ("_root", "all", "c", "f", "g", "h", "m", "q", "r", "t", "tag", "x")

    def __init__(self, prefix: str, owner: str, conversation: str) -> None:
        # Names are any text, braces included, and their lengths keep them apart.
        try:
            name = encode((owner, conversation))
        except UnicodeEncodeError as problem:
            raise InputError(f"{problem.object[:60]!r} can't be a name: it is not Unicode.") from None
        self.tag = hashlib.blake2b(name, digest_size=16).hexdigest()
        self._root = f"{prefix}:{{{self.tag}}}:"
        self.all = [f"{self._root}{part}".encode() for part in PARTS]
        self.c, self.t, self.m, self.g, self.f, self.q, self.r, self.h, self.x = self.all

    def entries(self, segment: int) -> bytes:
        return f"{self._root}s:{segment}".encode()


class Segment(NamedTuple):
    """Entries of one branch, behind the first `start` of the path that the segment `up` is the end of (0: none)."""

    number: int
    up: int
    start: int
    forked: int
    """The last place at which another one leaves it."""
    own: bool
    """Whether it has a record that only its branch is to see."""


class Branch(NamedTuple):
    name: str
    revision: int
    segment: int
    size: int
    entry: str | None
    turn: str
    records: list[int]
    token: int
    lease: Lease | None
    updated: int
    marks: bytes

    def made(self, mark: bytes) -> bool:
        """Whether a commit is among its newest."""
        return mark in (self.marks[i : i + MARK] for i in range(0, len(self.marks), MARK))


class Span(NamedTuple):
    """The part start … stop of a path that lies in one segment, which begins at `base`."""

    segment: int
    start: int
    stop: int
    base: int


class About(NamedTuple):
    """Where a record is."""

    number: int
    segment: int
    place: int
    kind: str


class Tree:
    """What the hash of a conversation says."""

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
        return int(self._fields.get(name.encode(), 0))

    def text(self, name: str) -> bytes:
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

    def path(self, segment: int, size: int) -> list[Span]:
        """The path of so many entries that ends in a segment, root first."""
        path: list[Span] = []
        while segment:
            held = self.segments[segment]
            path.append(Span(segment, held.start, max(held.start, size), held.start))
            segment, size = held.up, min(size, held.start)
        return path[::-1]

    def path_of(self, branch: str) -> list[Span]:
        found = self.branches.get(branch)
        return self.path(found.segment, found.size) if found else []

    def head(self, branch: Branch, turn: Turn | None) -> Head:
        """Where a branch stands, without its records."""
        return Head(
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

    def summary(self, id: str) -> Summary:  # noqa: A002
        return Summary(
            id=id,
            created=self.number("created"),
            updated=self.number("updated"),
            entries=self.number("entries"),
            branches=tuple(self.branches),
            meta=meta_of(self.text("meta")),
        )


@_reads("a conversation")
def tree_of(fields: Sequence[bytes]) -> Tree | None:
    """A conversation from its hash; None when there is none."""
    return Tree(dict(zip(fields[::2], fields[1::2], strict=True))) if fields else None


def on(path: Sequence[Span], segment: int, place: int) -> bool:
    """Whether a place of a segment is on a path; for -1 what stands before its first entry."""
    return any(span.segment == segment and place < span.stop for span in path)


def within(path: Sequence[Span], start: int, stop: int) -> list[Span]:
    """The parts of a path from start to stop."""
    return [
        span._replace(start=max(start, span.start), stop=min(stop, span.stop))
        for span in path
        if max(start, span.start) < min(stop, span.stop)
    ]


# Values


turn_of = _reads("a turn")(msgspec.msgpack.Decoder(Turn).decode)
record_of = _reads("a record")(msgspec.msgpack.Decoder(Record).decode)
name_of = _reads("a name")(bytes.decode)


@_reads("when a conversation was changed")
def time_of(data: bytes) -> int:
    return int(data)


@_reads("data of an app's own")
def meta_of(data: bytes) -> dict[str, Any]:
    held = json.loads(data)
    if not isinstance(held, dict):
        raise TypeError(type(held).__name__)
    return held


def lease_of(holder: bytes, until: bytes, token: bytes) -> Lease | None:
    return Lease(_holder_of(holder), int(until), int(token)) if holder else None


@_reads("a branch")
def head_of(branch: str, found: Sequence[Any]) -> Head:
    """Where a branch stands, as a script says."""
    revision, _, _, size, entry, turn, token, holder, until, held, updated, created, abouts, records = found
    return Head(
        branch=branch,
        revision=int(revision),
        size=int(size),
        entry=entry.decode() or None,
        token=int(token),
        lease=lease_of(holder, until, held),
        turn=turn_of(turn) if turn else None,
        records=tuple(
            [
                Placed(record_of(record), int(about.split(b":", 2)[1]))
                for about, record in zip(abouts, records, strict=True)
            ]
        ),
        created=int(created),
        updated=int(updated),
    )


def row_in(entry: Entry, number: int) -> bytes:
    """An entry as it is kept."""
    return encode(
        (
            *(entry.turn, number, entry.parent, entry.kind, entry.role, entry.wire, entry.at, entry.mark, entry.bound),
            *(entry.tokens, entry.native, checksum(entry.native)),
        )
    )


@_reads("an entry")
def rows_of(values: Sequence[bytes]) -> list[Any]:
    """Entries as rows, each with its checksum at the end."""
    return [_row_of(value) for value in values]


def pack_of(values: Sequence[bytes]) -> Pack:
    return from_rows([row[:-1] for row in rows_of(values)])


def id_of(value: bytes) -> str:
    turn, number, *_ = rows_of([value])[0]
    return f"{turn}-{number}"


def request_in(request: Request, turn: str, branch: str) -> bytes:
    return encode((turn, request.body, branch))


@_reads("a request")
def request_of(key: str, value: bytes) -> tuple[Request, str, str, int]:
    """A request, the turn and the branch that it was made on, and the place of its first entry then."""
    place, _, data = value.partition(b":")
    turn, body, branch = _request_of(data)
    return Request(key, body), turn, branch, int(place)


@_reads("the place of a record")
def about_of(number: bytes, value: bytes) -> About:
    segment, place, kind = value.split(b":", 2)
    return About(int(number), int(segment), int(place), kind.decode())


def abouts_of(fields: Sequence[bytes]) -> list[About]:
    """Where all records are, in the order in which they were made."""
    return sorted(about_of(number, value) for number, value in zip(fields[::2], fields[1::2], strict=True))


def shown(abouts: Sequence[About], path: Sequence[Span]) -> list[int]:
    """The records that a head with this path shows."""
    found: list[int] = []
    replaced: set[str] = set()
    for about in reversed(abouts):
        if on(path, about.segment, about.place) and about.kind not in replaced:
            found.append(about.number)
            if about.kind in REPLACED:
                replaced.add(about.kind)
    return found[::-1]


@_reads("where a turn is")
def runs_of(value: bytes | None) -> list[tuple[int, int, int]]:
    """Where the entries of a turn are: segment, place and number of the first of each run of neighbours."""
    split = [run.split(b":") for run in (value or b"").split()]
    return [(int(segment), int(place), int(number)) for segment, place, number in split]


@_reads("where a turn begins")
def begun_of(value: bytes) -> tuple[int, int, str]:
    """Where a turn begins: segment and place, and the id of the turn."""
    segment, place, turn = value.split(b":", 2)
    return int(segment), int(place), turn.decode()


def is_alone(placed: Placed) -> bool:
    return placed.record.kind in ALONE

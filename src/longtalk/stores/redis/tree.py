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

from longtalk.errors import CorruptStore, InputError
from longtalk.stores._paths import Span, is_on_path, list_head_records, trace_path
from longtalk.stores._rows import pack_from_rows
from longtalk.stores.base import BranchHead, ConversationInfo, Holder, KeyedRequest, Lease, PlacedRecord
from longtalk.stores.redis.scripts import MARK_SIZE, PARTS
from longtalk.transcript.pack import Entry, Pack, checksum
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Record, Turn

encode = msgspec.msgpack.Encoder().encode
_decode_holder = msgspec.msgpack.Decoder(Holder).decode
_Row = tuple[str, int, str | None, str, str, str, int, str, str, int, bytes, int]
"""A stored entry: turn, number in the turn, parent, kind, role, wire, at, mark, bound, tokens, native, checksum."""
_decode_row = msgspec.msgpack.Decoder(_Row).decode
_decode_request = msgspec.msgpack.Decoder(tuple[str, str, str]).decode

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Damaged(CorruptStore):
    """Raised if stored data is missing or can't be decoded. `damage` is the message without the remedy."""

    def __init__(self, damage: str) -> None:
        super().__init__(f"The Redis store is damaged: {damage}. Call `verify` for details, and restore a backup.")
        self.damage = damage


class ConversationGone(Exception):
    """Raised if a conversation was deleted while it was being read."""


def _decodes(value: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Return a decorator that makes a decoding function raise `Damaged` if it fails.

    `value` names what the function decodes, such as "a turn", in the error message.
    """

    def decorate(decode: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(decode)
        def decode_or_raise(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            try:
                return decode(*args, **kwargs)
            except (AttributeError, LookupError, TypeError, ValueError) as problem:
                reason = problem if isinstance(problem, ValueError) else repr(problem)
                raise Damaged(f"{value} can't be read: {reason}") from None

        return decode_or_raise

    return decorate


class Keys:
    """The keys of a conversation in Redis; `scripts.py` says what each contains.

    The part of a key in braces (`tag`) determines its slot, so all keys of a conversation are in one slot.
    """

    __slots__ = (
        "_root",
        "all",
        "conversation",
        "locations",
        "manifests",
        "metas",
        "records",
        "requests",
        "runs",
        "tag",
        "turn_starts",
        "turns",
    )

    def __init__(self, prefix: str, owner: str, conversation: str) -> None:
        # Owner and id may be any text, even with braces. Their encoded lengths keep different pairs apart.
        try:
            name = encode((owner, conversation))
        except UnicodeEncodeError as problem:
            raise InputError(
                f"{problem.object[:60]!r} can't be an owner or a conversation's id: it is not valid Unicode."
            ) from None
        self.tag = hashlib.blake2b(name, digest_size=16).hexdigest()
        self._root = f"{prefix}:{{{self.tag}}}:"
        self.all = [f"{self._root}{part}".encode() for part in PARTS]
        self.conversation, self.turns, self.manifests, self.runs, self.turn_starts, *others = self.all
        self.requests, self.records, self.locations, self.metas = others

    def get_entries_key(self, segment: int) -> bytes:
        """Return the key of the list that contains the entries of a segment."""
        return f"{self._root}s:{segment}".encode()


class Segment(NamedTuple):
    """The entries that one branch added after the first `start` entries of the path that ends in segment `base`."""

    number: int
    base: int
    """The number of the segment that this one continues, or 0 if there is none."""
    start: int
    last_fork: int
    """The last position at which another segment branches off this one, or -1 if none does."""
    has_own_records: bool
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

    def has_commit(self, mark: bytes) -> bool:
        """Return whether the commit with this mark is among the branch's newest commits."""
        return mark in (self.marks[i : i + MARK_SIZE] for i in range(0, len(self.marks), MARK_SIZE))


class RecordLocation(NamedTuple):
    """The kind of a record, and the entry that it is attached to (position -1: before the first entry)."""

    number: int
    """The number of the record, which increases with each new record of the conversation."""
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
                base, start = map(int, value.split(b":"))
                if not 0 <= base < number:
                    raise ValueError(f"segment {number} can't continue segment {base}, which is not older")
                last_fork = int(fields.get(b"F:%d" % number, -1))
                self.segments[number] = Segment(number, base, start, last_fork, b"O:%d" % number in fields)
        names = sorted(name[2:].decode() for name in fields if name.startswith(b"v:"))
        self.branches = {name: self._decode_branch(name) for name in names}
        used = {branch.segment for branch in self.branches.values()}
        used |= {segment.base for segment in self.segments.values()}
        if missing := used - self.segments.keys() - {0}:
            raise ValueError(f"segment {min(missing)} is missing")

    @_decodes("a conversation")
    def get_number(self, name: str) -> int:
        """Return a field of the conversation's hash as a number, or 0 if the field isn't set."""
        return int(self._fields.get(name.encode(), 0))

    def get_bytes(self, name: str) -> bytes:
        """Return a field of the conversation's hash, or empty bytes if the field isn't set."""
        return self._fields.get(name.encode(), b"")

    def _decode_branch(self, name: str) -> Branch:
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
            lease=decode_lease(field(b"l"), field(b"i"), field(b"j")),
            updated=int(field(b"a")),
            marks=field(b"w"),
        )

    def trace_path(self, segment: int, size: int) -> list[Span[int]]:
        """Return the first `size` entries of the path that ends in `segment`, as spans from the root on."""
        return trace_path(
            segment or None, size, lambda each: (self.segments[each].start, self.segments[each].base or None)
        )

    def find_branch_path(self, branch: str) -> list[Span[int]]:
        """Return the path of a branch, as spans from the root on. The list is empty if the branch doesn't exist."""
        found = self.branches.get(branch)
        return self.trace_path(found.segment, found.size) if found else []

    def build_head(self, branch: Branch, turn: Turn | None) -> BranchHead:
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
            created=self.get_number("created"),
            updated=branch.updated,
        )

    def build_info(self, id: str) -> ConversationInfo:  # noqa: A002
        """Return the times, size, branches and metadata of the conversation, whose id is `id`."""
        return ConversationInfo(
            id=id,
            created=self.get_number("created"),
            updated=self.get_number("updated"),
            entries=self.get_number("entries"),
            branches=tuple(self.branches),
            meta=decode_meta(self.get_bytes("meta")),
        )


@_decodes("a conversation")
def decode_tree(fields: Sequence[bytes]) -> Tree | None:
    """Decode the hash of a conversation. Return None if the hash is empty because the conversation doesn't exist."""
    return Tree(dict(zip(fields[::2], fields[1::2], strict=True))) if fields else None


# Values


decode_turn = _decodes("a turn")(msgspec.msgpack.Decoder(Turn).decode)
decode_record = _decodes("a record")(msgspec.msgpack.Decoder(Record).decode)
decode_name = _decodes("a name")(bytes.decode)


@_decodes("the time of a conversation's last change")
def decode_time(data: bytes) -> int:
    """Decode the time of a conversation's last change."""
    return int(data)


@_decodes("metadata")
def decode_meta(data: bytes) -> dict[str, Any]:
    """Decode an app's metadata, which must be a JSON object."""
    meta = json.loads(data)
    if not isinstance(meta, dict):
        raise TypeError(type(meta).__name__)
    return meta


def decode_lease(holder: bytes, until: bytes, token: bytes) -> Lease | None:
    """Decode a lease. Return None if the lease has no holder."""
    return Lease(_decode_holder(holder), int(until), int(token)) if holder else None


@_decodes("a branch")
def decode_head(branch: str, reply: Sequence[Any]) -> BranchHead:
    """Decode the head of a branch from a script's reply."""
    revision, _, _, size, entry, turn, token, holder, until, lease_token, updated, created, locations, records = reply
    return BranchHead(
        branch=branch,
        revision=int(revision),
        size=int(size),
        entry=entry.decode() or None,
        token=int(token),
        lease=decode_lease(holder, until, lease_token),
        turn=decode_turn(turn) if turn else None,
        records=tuple(
            [
                PlacedRecord(decode_record(record), int(location.split(b":", 2)[1]))
                for location, record in zip(locations, records, strict=True)
            ]
        ),
        created=int(created),
        updated=int(updated),
    )


def encode_entry(entry: Entry, number: int) -> bytes:
    """Encode an entry and its checksum for storage. `number` is the entry's number within its turn."""
    return encode(
        (
            *(entry.turn, number, entry.parent, entry.kind, entry.role, entry.wire, entry.at, entry.mark, entry.bound),
            *(entry.tokens, entry.native, checksum(entry.native)),
        )
    )


@_decodes("an entry")
def decode_rows(values: Sequence[bytes]) -> list[Any]:
    """Decode stored entries into rows. The last value of each row is the checksum."""
    return [_decode_row(value) for value in values]


def decode_pack(values: Sequence[bytes]) -> Pack:
    """Decode stored entries into a pack."""
    return pack_from_rows([row[:-1] for row in decode_rows(values)])


def decode_entry_id(value: bytes) -> str:
    """Return the id of an encoded entry."""
    turn, number, *_ = decode_rows([value])[0]
    return f"{turn}-{number}"


def encode_request(request: KeyedRequest, turn: str, branch: str) -> bytes:
    """Encode a request's digest for storage, with its turn and the branch on which the turn was made."""
    return encode((turn, request.body, branch))


@_decodes("a request")
def decode_request(key: str, value: bytes) -> tuple[KeyedRequest, str, str, int]:
    """Decode a request with an idempotency key.

    Returns the request, its turn, its branch, and the position at which the turn began.
    """
    position, _, data = value.partition(b":")
    turn, body, branch = _decode_request(data)
    return KeyedRequest(key, body), turn, branch, int(position)


@_decodes("the position of a record")
def decode_location(number: bytes, value: bytes) -> RecordLocation:
    """Decode the kind of a record and the entry that it is attached to."""
    segment, position, kind = value.split(b":", 2)
    return RecordLocation(int(number), int(segment), int(position), kind.decode())


def decode_locations(fields: Sequence[bytes]) -> list[RecordLocation]:
    """Decode the hash of all record locations. Return the locations in the order in which records were created."""
    return sorted(decode_location(number, value) for number, value in zip(fields[::2], fields[1::2], strict=True))


def select_head_records(locations: Sequence[RecordLocation], path: Sequence[Span[int]]) -> list[int]:
    """Return the numbers of the records that belong to the head of a branch with this path."""
    on_path = [location for location in locations if is_on_path(path, location.segment, location.position)]
    return [location.number for location in list_head_records(on_path, lambda location: location.kind)]


@_decodes("the positions of a turn")
def decode_runs(value: bytes | None) -> list[tuple[int, int, int]]:
    """Decode the positions of a turn's entries.

    Returns, for each run of consecutive entries, the segment, the position and the number of its first entry.
    """
    split = [run.split(b":") for run in (value or b"").split()]
    return [(int(segment), int(position), int(number)) for segment, position, number in split]


@_decodes("the start of a turn")
def decode_turn_start(value: bytes) -> tuple[int, int, str]:
    """Decode the start of a turn. Return the segment and position of its first entry, and the turn's id."""
    segment, position, turn = value.split(b":", 2)
    return int(segment), int(position), turn.decode()


def is_own_branch_only(placed: PlacedRecord) -> bool:
    """Return whether a record may be seen only by the branch on which it was written."""
    return kind_of(placed.record.kind).own_branch_only

"""The lines of a conversation's JSONL file: their types, and their encoding as JSON.

The JSON of an entry is part of its line, unchanged. JSON with a newline, an unpaired surrogate or invalid Unicode is
stored in base64 instead, in a separate field. Unknown line types and keys are from a later version and are ignored.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from sys import intern
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from longtalk.stores._rows import to_utf8_json
from longtalk.stores._tree import ConversationTree
from longtalk.stores.base import Commit, KeyedRequest, Lease, PlacedRecord
from longtalk.transcript.pack import Entry
from longtalk.transcript.pack_index import Kind
from longtalk.transcript.transcript import Finish, Record, Turn, TurnStatus

FORMAT = 1
"""The version of the file format that this code writes. It is also the newest version that this code can read."""

EMPTY_JSON = Raw()
"""The value of a `Raw` field that has no JSON. Such a field is not written to the file."""
_CONTROL = re.compile(rb"[\x00-\x1f]")


class _Line(msgspec.Struct, omit_defaults=True, tag_field="type"):
    """The base of all lines. Each `Raw` field has a twin, `…_base64`, for JSON that can't be stored as text."""


class ConversationLine(_Line, tag="conversation"):
    """The first line of a file. It identifies the conversation."""

    format: int
    id: str
    owner: str
    file: str
    """A random id of the file. It changes when a new file replaces this one under the same name."""


class EntryLine(_Line, tag="entry"):
    """The line for an entry and the entry's metadata."""

    id: str
    turn: str
    role: str
    at: int
    wire: str
    parent: str | None = None
    kind: Kind = "message"
    mark: str = ""
    bound: str = ""
    tokens: int = 0
    meta: Raw = EMPTY_JSON
    meta_base64: bytes = b""
    native: Raw = EMPTY_JSON
    native_base64: bytes = b""


class TurnLine(_Line, tag="turn"):
    """The line for a turn, with the request that it answers and its manifest."""

    id: str
    status: TurnStatus
    model: str
    started: int
    agent: str = ""
    """The part of the model's name that names the provider, for human readers of the file."""
    request: KeyedRequest | None = None
    ended: int = 0
    duration: int = 0
    """The duration of the turn in milliseconds, for human readers of the file."""
    finish: Finish = "stop"
    usage: tuple[Raw, ...] = ()
    usage_base64: tuple[bytes, ...] = ()
    responses: tuple[Raw, ...] = ()
    responses_base64: tuple[bytes, ...] = ()
    preamble: str = ""
    error: str = ""
    manifest: Raw = EMPTY_JSON
    manifest_base64: bytes = b""


class RecordLine(_Line, tag="record"):
    """The line for a record, with the position of the entry that the record is attached to."""

    kind: str
    entry: str
    position: int = msgspec.field(name="place")
    at: int
    data: Raw = EMPTY_JSON
    data_base64: bytes = b""


class CommitLine(_Line, tag="commit"):
    """The line that closes the group of a commit."""

    branch: str
    revision: int
    head: str | None
    """The id of the last entry of the path after the commit, or None if the path is empty."""
    size: int
    """The number of entries on the path after the commit."""
    at: int
    source: tuple[str, int] | None = None
    cut: int | None = None
    lease: Lease | None = None
    time: str = ""
    """The value of `at` as a date and time in UTC, for human readers of the file."""
    meta: Raw = EMPTY_JSON
    meta_base64: bytes = b""


class LeaseLine(_Line, tag="lease"):
    """The line for the renewal of a lease. It forms a separate group."""

    branch: str
    token: int
    until: int


class MetaLine(_Line, tag="meta"):
    """The line for new metadata of the conversation or of an entry. It forms a separate group."""

    entry: str | None = None
    meta: Raw = EMPTY_JSON
    meta_base64: bytes = b""


class RedactLine(_Line, tag="redact"):
    """The line for a redaction. It forms a separate group; the lines before it already contain the entry's new JSON."""

    entry: str
    at: int


Line: TypeAlias = ConversationLine | EntryLine | TurnLine | RecordLine | CommitLine | LeaseLine | MetaLine | RedactLine
_TYPES = (ConversationLine, EntryLine, TurnLine, RecordLine, CommitLine, LeaseLine, MetaLine, RedactLine)
_KNOWN_TAGS = {kind.__struct_config__.tag for kind in _TYPES}
_decode: Callable[[bytes], Line] = msgspec.json.Decoder(Line).decode
_encode = msgspec.json.Encoder().encode
_ENTRY_FIELDS = ("id", "turn", "role", "at", "wire", "parent", "kind", "mark", "bound", "tokens")
_TURN_FIELDS = ("id", "status", "model", "started", "ended", "finish", "preamble", "error")


def encode_line(value: Line) -> bytes:
    """Return a line encoded as JSON, without the newline."""
    in_base64 = to_base64(value)
    for each in (value, in_base64):
        try:
            line = _encode(each)
            line.decode()
            if not _CONTROL.search(line) and _decode(line) == each:
                return line
        except (ValueError, RecursionError):
            pass
    # A name or an error text isn't valid Unicode; `json` escapes it.
    return json.dumps(msgspec.to_builtins(in_base64), separators=(",", ":")).encode()


def to_base64(value: Line) -> Line:
    """Return a copy of a line with all raw JSON moved to the corresponding base64 fields."""
    changes: dict[str, Any] = {}
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if isinstance(field, Raw):
            changes |= {name: EMPTY_JSON, f"{name}_base64": bytes(field)}
        elif name in ("usage", "responses"):
            changes |= {name: (), f"{name}_base64": tuple(map(bytes, field))}
    return msgspec.structs.replace(value, **changes)


def parse_line(line: bytes) -> Line | None:
    """Decode a line. Return None if the line's type is unknown, and raise `ValueError` if the line is invalid."""
    try:
        return _decode(line)
    except ValueError:
        members = json.loads(line)
    if isinstance(members, dict) and isinstance(members.get("type"), str) and members["type"] not in _KNOWN_TAGS:
        return None
    converted: Line = msgspec.convert(members, Line)
    return converted


def _copy_fields(value: object, names: Sequence[str]) -> dict[str, Any]:
    """Return the named fields of an object, by name."""
    # msgspec omits a default value only if it is the identical object, so strings are interned.
    return {name: intern(field) if type(field := getattr(value, name)) is str else field for name in names}


def entry_to_line(entry: Entry, meta: Mapping[str, Any] | None) -> EntryLine:
    """Return the line for an entry and its metadata."""
    return EntryLine(
        **_copy_fields(entry, _ENTRY_FIELDS),
        meta=meta_to_raw(meta),
        native=Raw(entry.native) if entry.native else EMPTY_JSON,
    )


def line_to_entry(line: EntryLine) -> Entry:
    """Return the entry that a line contains."""
    return Entry(**_copy_fields(line, _ENTRY_FIELDS), native=line.native_base64 or bytes(line.native))


def turn_to_line(turn: Turn, request: KeyedRequest | None = None, manifest: bytes = b"") -> TurnLine:
    """Return the line for a turn, the request that it answers, and its manifest."""
    return TurnLine(
        **_copy_fields(turn, _TURN_FIELDS),
        agent=turn.model.partition(":")[0],
        request=request,
        duration=max(0, turn.ended - turn.started),
        usage=tuple(map(Raw, turn.usage)),
        responses=tuple(map(Raw, turn.responses)),
        manifest=Raw(manifest) if manifest else EMPTY_JSON,
    )


def line_to_turn(line: TurnLine) -> Turn:
    """Return the turn that a line contains."""
    return Turn(
        **_copy_fields(line, _TURN_FIELDS),
        usage=line.usage_base64 or tuple(map(bytes, line.usage)),
        responses=line.responses_base64 or tuple(map(bytes, line.responses)),
    )


def record_to_line(placed: PlacedRecord) -> RecordLine:
    """Return the line for a record."""
    record = placed.record
    return RecordLine(
        kind=record.kind, entry=record.entry, position=placed.position, at=record.at, data=Raw(record.data)
    )


def line_to_record(line: RecordLine) -> PlacedRecord:
    """Return the record that a line contains, with its position."""
    return PlacedRecord(Record(line.kind, line.entry, line.at, line.data_base64 or bytes(line.data)), line.position)


def meta_to_raw(meta: Mapping[str, Any] | None) -> Raw:
    """Return an app's metadata encoded for a line. None gives an empty value, which is not written to the file."""
    return EMPTY_JSON if meta is None else Raw(to_utf8_json(meta))


def line_to_meta(line: EntryLine | CommitLine | MetaLine) -> dict[str, Any] | None:
    """Return the metadata that a line contains, or None if the line has no metadata."""
    data = line.meta_base64 or bytes(line.meta)
    return json.loads(data) if data else None


def format_utc(at: int, timespec: str = "milliseconds") -> str:
    """Return a time as ISO 8601 in UTC, or an empty string if the time is out of range.

    `at` is the time in milliseconds since 1970.
    """
    try:
        when = dt.datetime.fromtimestamp(at / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return when.isoformat(timespec=timespec).replace("+00:00", "Z")


def commit_to_lines(commit: Commit, tree: ConversationTree) -> tuple[list[bytes], bytes]:
    """Encode a commit as lines for its entries, turn and records, and a line that closes the group.

    `tree` is the conversation's tree before the commit.
    """
    lines: list[Line] = []
    for i, entry in enumerate(commit.entries):
        lines.append(entry_to_line(entry, commit.entry_meta.get(i)))
    if commit.turn is not None:
        lines.append(turn_to_line(commit.turn, commit.request, commit.manifest))
    lines += map(record_to_line, commit.records)
    head, size = tree.find_end_after(commit)
    close = CommitLine(
        branch=commit.branch,
        revision=commit.expect + 1,
        head=head,
        size=size,
        source=commit.source,
        cut=commit.cut,
        lease=commit.lease,
        at=commit.at,
        time=format_utc(commit.at),
        meta=meta_to_raw(commit.meta),
    )
    return list(map(encode_line, lines)), encode_line(close)


def lines_to_commit(lines: Sequence[Line | None], close: CommitLine) -> Commit:
    """Rebuild the commit that was written as these lines and this closing line."""
    entries = [line for line in lines if isinstance(line, EntryLine)]
    turns = [line for line in lines if isinstance(line, TurnLine)]
    return Commit(
        branch=close.branch,
        expect=close.revision - 1,
        source=close.source,
        cut=close.cut,
        entries=tuple(map(line_to_entry, entries)),
        turn=line_to_turn(turns[0]) if turns else None,
        request=turns[0].request if turns else None,
        manifest=(turns[0].manifest_base64 or bytes(turns[0].manifest)) if turns else b"",
        records=tuple(line_to_record(line) for line in lines if isinstance(line, RecordLine)),
        lease=close.lease,
        at=close.at,
        meta=line_to_meta(close),
        entry_meta={i: meta for i, line in enumerate(entries) if (meta := line_to_meta(line)) is not None},
    )


def _describe_end(size: int, entry: str | None) -> str:
    return f"{size} entries ending with {entry!r}" if size else "no entries"


def apply_group(tree: ConversationTree, lines: Sequence[Line | None]) -> None:
    """Apply a group of lines to the tree of a conversation.

    Raises `ValueError` if, after a commit, the last entry or the size of the branch is not what its closing line says.
    """
    close = lines[-1]
    if isinstance(close, CommitLine):
        tree.apply(lines_to_commit(lines, close))
        head = tree.head(close.branch, records=False)
        if head is None or (head.entry, head.size) != (close.head, close.size):
            expected = _describe_end(close.size, close.head)
            found = _describe_end(head.size, head.entry) if head else "no entries"
            raise ValueError(f"after this commit, branch {close.branch!r} should have {expected}, but has {found}")
    elif isinstance(close, LeaseLine):
        tree.renew(close.branch, close.token, close.until)
    elif isinstance(close, MetaLine):
        tree.describe(line_to_meta(close) or {}, close.entry)
    elif isinstance(close, RedactLine):
        tree.bump_revisions(close.entry)

"""The lines of a conversation as a file that a person can read: what each says, as JSON.

An entry's JSON stands in its line as it is; what can't stand there (a newline, half a surrogate pair, what is not
Unicode) is in base64 under another name. Types of lines and keys that are not known here are those of a later version.
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

from longtalk.pack import Entry, Kind
from longtalk.stores.base import Commit, Lease, Placed, Request
from longtalk.stores.ledger import Ledger, plain
from longtalk.transcript import Finish, Record, Turn, TurnStatus

FORMAT = 1

NONE = Raw()
_CONTROL = re.compile(rb"[\x00-\x1f]")


class _Line(msgspec.Struct, omit_defaults=True, tag_field="type"):
    """A line. What is `Raw` may be in a field of the same name with `_base64` behind it instead."""


class ConversationLine(_Line, tag="conversation"):
    """The first line of a file."""

    format: int
    id: str
    owner: str
    file: str
    """Random: another one under the same name is another file."""


class EntryLine(_Line, tag="entry"):
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
    meta: Raw = NONE
    meta_base64: bytes = b""
    native: Raw = NONE
    native_base64: bytes = b""


class TurnLine(_Line, tag="turn"):
    id: str
    status: TurnStatus
    model: str
    started: int
    agent: str = ""
    """Who runs the model, for who reads the file."""
    request: Request | None = None
    ended: int = 0
    duration: int = 0
    """In milliseconds, for who reads the file."""
    finish: Finish = "stop"
    usage: tuple[Raw, ...] = ()
    usage_base64: tuple[bytes, ...] = ()
    preamble: str = ""
    error: str = ""
    manifest: Raw = NONE
    manifest_base64: bytes = b""


class RecordLine(_Line, tag="record"):
    kind: str
    entry: str
    place: int
    at: int
    data: Raw = NONE
    data_base64: bytes = b""


class CommitLine(_Line, tag="commit"):
    """Closes a commit."""

    branch: str
    revision: int
    head: str | None
    """The last entry of the path from now on …"""
    size: int
    """… and how many there are."""
    at: int
    source: tuple[str, int] | None = None
    cut: int | None = None
    lease: Lease | None = None
    time: str = ""
    """The same, for who reads the file."""
    meta: Raw = NONE
    meta_base64: bytes = b""


class LeaseLine(_Line, tag="lease"):
    """Closes a group of its own: a lease was renewed."""

    branch: str
    token: int
    until: int


class MetaLine(_Line, tag="meta"):
    """Closes a group of its own: the app's own data on the conversation, or on an entry, was replaced."""

    entry: str | None = None
    meta: Raw = NONE
    meta_base64: bytes = b""


class RedactLine(_Line, tag="redact"):
    """Closes a group of its own: the JSON of an entry was replaced, in all lines above."""

    entry: str
    at: int


Line: TypeAlias = ConversationLine | EntryLine | TurnLine | RecordLine | CommitLine | LeaseLine | MetaLine | RedactLine
_TYPES = (ConversationLine, EntryLine, TurnLine, RecordLine, CommitLine, LeaseLine, MetaLine, RedactLine)
_KNOWN = {kind.__struct_config__.tag for kind in _TYPES}
_decode: Callable[[bytes], Line] = msgspec.json.Decoder(Line).decode
_encode = msgspec.json.Encoder().encode
_ENTRY = ("id", "turn", "role", "at", "wire", "parent", "kind", "mark", "bound", "tokens")
_TURN = ("id", "status", "model", "started", "ended", "finish", "preamble", "error")


def line_of(value: Line) -> bytes:
    """A line, without its end."""
    odd = in_base64(value)
    for each in (value, odd):
        try:
            line = _encode(each)
            line.decode()
            if not _CONTROL.search(line) and _decode(line) == each:
                return line
        except (ValueError, RecursionError):
            pass
    # A name or an error that is not Unicode.
    return json.dumps(msgspec.to_builtins(odd), separators=(",", ":")).encode()


def in_base64(value: Line) -> Line:
    """A line with all JSON that it carries in base64."""
    changes: dict[str, Any] = {}
    for name in value.__struct_fields__:
        held = getattr(value, name)
        if isinstance(held, Raw):
            changes |= {name: NONE, f"{name}_base64": bytes(held)}
        elif name == "usage":
            changes |= {name: (), f"{name}_base64": tuple(map(bytes, held))}
    return msgspec.structs.replace(value, **changes)


def read_line(line: bytes) -> Line | None:
    """What a line says; None when it is of a later version. Raises `ValueError`."""
    try:
        return _decode(line)
    except ValueError:
        members = json.loads(line)
    if isinstance(members, dict) and isinstance(members.get("type"), str) and members["type"] not in _KNOWN:
        return None
    read: Line = msgspec.convert(members, Line)
    return read


def _same(value: object, names: Sequence[str]) -> dict[str, Any]:
    # A default is left out of a line if it is the very same object.
    return {name: intern(held) if type(held := getattr(value, name)) is str else held for name in names}


def entry_line(entry: Entry, meta: Mapping[str, Any] | None) -> EntryLine:
    return EntryLine(**_same(entry, _ENTRY), meta=raw(meta), native=Raw(entry.native) if entry.native else NONE)


def entry_of(line: EntryLine) -> Entry:
    return Entry(**_same(line, _ENTRY), native=line.native_base64 or bytes(line.native))


def turn_line(turn: Turn, request: Request | None = None, manifest: bytes = b"") -> TurnLine:
    return TurnLine(
        **_same(turn, _TURN),
        agent=turn.model.partition(":")[0],
        request=request,
        duration=max(0, turn.ended - turn.started),
        usage=tuple(map(Raw, turn.usage)),
        manifest=Raw(manifest) if manifest else NONE,
    )


def turn_of(line: TurnLine) -> Turn:
    return Turn(**_same(line, _TURN), usage=line.usage_base64 or tuple(map(bytes, line.usage)))


def record_line(placed: Placed) -> RecordLine:
    record = placed.record
    return RecordLine(kind=record.kind, entry=record.entry, place=placed.place, at=record.at, data=Raw(record.data))


def record_of(line: RecordLine) -> Placed:
    return Placed(Record(line.kind, line.entry, line.at, line.data_base64 or bytes(line.data)), line.place)


def raw(meta: Mapping[str, Any] | None) -> Raw:
    return NONE if meta is None else Raw(plain(meta))


def meta_of(line: EntryLine | CommitLine | MetaLine) -> dict[str, Any] | None:
    data = line.meta_base64 or bytes(line.meta)
    return json.loads(data) if data else None


def utc(at: int, timespec: str = "milliseconds") -> str:
    """A time for who reads the file; nothing when no date can be made of it."""
    try:
        when = dt.datetime.fromtimestamp(at / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return when.isoformat(timespec=timespec).replace("+00:00", "Z")


def lines_of(commit: Commit, ledger: Ledger) -> tuple[list[bytes], bytes]:
    """The lines of a commit on a conversation, and the one that closes it."""
    lines: list[Line] = []
    for i, entry in enumerate(commit.entries):
        lines.append(entry_line(entry, commit.entry_meta.get(i)))
    if commit.turn is not None:
        lines.append(turn_line(commit.turn, commit.request, commit.manifest))
    lines += map(record_line, commit.records)
    head, size = ledger.after(commit)
    close = CommitLine(
        branch=commit.branch,
        revision=commit.expect + 1,
        head=head,
        size=size,
        source=commit.source,
        cut=commit.cut,
        lease=commit.lease,
        at=commit.at,
        time=utc(commit.at),
        meta=raw(commit.meta),
    )
    return list(map(line_of, lines)), line_of(close)


def commit_of(lines: Sequence[Line | None], close: CommitLine) -> Commit:
    """The commit that was written as these lines."""
    entries = [line for line in lines if isinstance(line, EntryLine)]
    turns = [line for line in lines if isinstance(line, TurnLine)]
    return Commit(
        branch=close.branch,
        expect=close.revision - 1,
        source=close.source,
        cut=close.cut,
        entries=tuple(map(entry_of, entries)),
        turn=turn_of(turns[0]) if turns else None,
        request=turns[0].request if turns else None,
        manifest=(turns[0].manifest_base64 or bytes(turns[0].manifest)) if turns else b"",
        records=tuple(record_of(line) for line in lines if isinstance(line, RecordLine)),
        lease=close.lease,
        at=close.at,
        meta=meta_of(close),
        entry_meta={i: meta for i, line in enumerate(entries) if (meta := meta_of(line)) is not None},
    )


def apply(ledger: Ledger, lines: Sequence[Line | None]) -> None:
    """Do to a conversation what a group of lines says."""
    close = lines[-1]
    if isinstance(close, CommitLine):
        ledger.apply(commit_of(lines, close))
        head = ledger.head(close.branch, records=False)
        if head is None or (head.entry, head.size) != (close.head, close.size):
            raise ValueError("the head is another one")
    elif isinstance(close, LeaseLine):
        ledger.renew(close.branch, close.token, close.until)
    elif isinstance(close, MetaLine):
        ledger.describe(meta_of(close) or {}, close.entry)
    elif isinstance(close, RedactLine):
        ledger.touch(close.entry)

"""Conversations as files that a person can read: one JSON line for each entry, both sides, in the order of events.

A folder per owner, a file per conversation. A commit is one group of lines (see `folder.py`): its entries, the turn
with model, duration, usage and the caller's key, its records, and a line that closes it with branch, revision and head.
An entry's JSON stands in its line as it is; what can't stand there (a newline, half a surrogate pair, what is not
Unicode) is in base64 under another name. Types of lines and keys that are not known here are those of a later version:
they are ignored, and kept when a file is written anew.

A file is read once by each process, and then only what others have appended since.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from longtalk import _json
from longtalk.pack import Entry, Kind
from longtalk.stores.base import Commit, Head, KeyTaken, Lease, Moved, Placed, Receipt, Request
from longtalk.stores.folder import (
    Damaged,
    Group,
    Log,
    Problem,
    closed,
    files,
    first_line,
    groups,
    id_of,
    name_of,
    unclosed,
)
from longtalk.stores.ledger import Ledger, plain
from longtalk.stores.memory import Ledgers
from longtalk.transcript import Finish, Record, Turn, TurnStatus, new_id, now

FORMAT = 1

_NONE = Raw()
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
    meta: Raw = _NONE
    meta_base64: bytes = b""
    native: Raw = _NONE
    native_base64: bytes = b""


class TurnLine(_Line, tag="turn"):
    id: str
    status: TurnStatus
    model: str
    started: int
    request: Request | None = None
    ended: int = 0
    duration: int = 0
    """In milliseconds, for who reads the file."""
    finish: Finish = "stop"
    usage: tuple[Raw, ...] = ()
    usage_base64: tuple[bytes, ...] = ()
    preamble: str = ""
    error: str = ""


class RecordLine(_Line, tag="record"):
    kind: str
    entry: str
    place: int
    at: int
    data: Raw = _NONE
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
    meta: Raw = _NONE
    meta_base64: bytes = b""


class LeaseLine(_Line, tag="lease"):
    """Closes a group of its own: a lease was renewed."""

    branch: str
    token: int
    until: int


class MetaLine(_Line, tag="meta"):
    """Closes a group of its own: the app's own data on the conversation was replaced."""

    meta: Raw = _NONE
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
    odd = _in_base64(value)
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


def _in_base64(value: Line) -> Line:
    changes: dict[str, Any] = {}
    for name in value.__struct_fields__:
        held = getattr(value, name)
        if isinstance(held, Raw):
            changes |= {name: _NONE, f"{name}_base64": bytes(held)}
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
    return {name: getattr(value, name) for name in names}


def _entry_line(entry: Entry, meta: Mapping[str, Any] | None) -> EntryLine:
    return EntryLine(**_same(entry, _ENTRY), meta=_raw(meta), native=Raw(entry.native) if entry.native else _NONE)


def _entry(line: EntryLine) -> Entry:
    return Entry(**_same(line, _ENTRY), native=line.native_base64 or bytes(line.native))


def _turn_line(turn: Turn, request: Request | None) -> TurnLine:
    duration, usage = max(0, turn.ended - turn.started), tuple(map(Raw, turn.usage))
    return TurnLine(**_same(turn, _TURN), request=request, duration=duration, usage=usage)


def _turn(line: TurnLine) -> Turn:
    return Turn(**_same(line, _TURN), usage=line.usage_base64 or tuple(map(bytes, line.usage)))


def _record_line(placed: Placed) -> RecordLine:
    record = placed.record
    return RecordLine(kind=record.kind, entry=record.entry, place=placed.place, at=record.at, data=Raw(record.data))


def _record(line: RecordLine) -> Placed:
    return Placed(Record(line.kind, line.entry, line.at, line.data_base64 or bytes(line.data)), line.place)


def _raw(meta: Mapping[str, Any] | None) -> Raw:
    return _NONE if meta is None else Raw(plain(meta))


def _meta(line: EntryLine | CommitLine | MetaLine) -> dict[str, Any] | None:
    data = line.meta_base64 or bytes(line.meta)
    return json.loads(data) if data else None


def _time(at: int) -> str:
    try:
        when = dt.datetime.fromtimestamp(at / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def lines_of(commit: Commit, ledger: Ledger) -> tuple[list[bytes], bytes]:
    """The lines of a commit on a conversation, and the one that closes it."""
    lines: list[Line] = []
    for i, entry in enumerate(commit.entries):
        lines.append(_entry_line(entry, None if i else commit.entry_meta))
    if commit.turn is not None:
        lines.append(_turn_line(commit.turn, commit.request))
    lines += map(_record_line, commit.records)
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
        time=_time(commit.at),
        meta=_raw(commit.meta),
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
        entries=tuple(map(_entry, entries)),
        turn=_turn(turns[0]) if turns else None,
        request=turns[0].request if turns else None,
        records=tuple(_record(line) for line in lines if isinstance(line, RecordLine)),
        lease=close.lease,
        at=close.at,
        meta=_meta(close),
        entry_meta=_meta(entries[0]) if entries else None,
    )


class _Talk:
    """One conversation: its file, and what has been read of it."""

    def __init__(self, folder: Path, owner: str, id: str) -> None:  # noqa: A002
        self.log = Log(folder / name_of(owner), name_of(id))
        self.mutex = threading.RLock()
        self._owner = owner
        self._id = id
        self.forget()

    def forget(self) -> None:
        self.ledger = Ledger()
        self.offset = 0
        self.torn = 0
        """How many bytes behind the offset are not a whole group."""
        self._line = 1
        self._header = b""

    def refresh(self) -> None:
        """Read what was appended since."""
        found = self.log.read(self._header, self.offset)
        if found is None or not found[0]:
            self.forget()
        if found is None:
            return
        try:
            whole, size = groups(found[1], self.log.path, self._line)
            if whole and not self.offset:
                self._check(whole[0])
            for group in whole:
                self._fold(group)
        except BaseException:
            # Read again from the start the next time; what was read until here is what is known.
            self.offset = 0
            raise
        self.offset += size
        self.torn = len(found[1]) - size

    def _check(self, first: Group) -> None:
        path = self.log.path
        try:
            header = read_line(first.lines[0])
        except ValueError as problem:
            raise Damaged(path, 1, str(problem)) from None
        if not isinstance(header, ConversationLine):
            raise Damaged(path, 1, "it does not say which conversation this is")
        if header.format > FORMAT:
            raise Damaged(path, 1, f"it is of version {header.format}, and {FORMAT} is the last one known here")
        if (header.owner, header.id) != (self._owner, self._id):
            raise Damaged(path, 1, f"the file has the name of another conversation than {header.id!r}")
        self._header = first.lines[0] + b"\n"

    def _fold(self, group: Group) -> None:
        lines: list[Line | None] = []
        number = group.first
        try:
            for number, line in enumerate(group.lines, group.first):  # noqa: B007
                lines.append(read_line(line))
            _apply(self.ledger, lines)
        except (Moved, KeyTaken, ValueError) as problem:
            raise Damaged(self.log.path, number, f"it does not follow from the lines before it ({problem})") from None
        self._line = group.first + len(group.lines)

    def append(self, lines: Sequence[bytes], close: bytes, *, fsync: bool) -> None:
        """Write a group. What it says is the caller's to apply."""
        if not self.offset:
            header = ConversationLine(format=FORMAT, id=self._id, owner=self._owner, file=new_id())
            lines = [line_of(header), *lines]
        data = closed(lines, close)
        self.log.append(data, self.offset, fsync=fsync)
        if not self.offset:
            self._header = lines[0] + b"\n"
        self.offset += len(data)
        self._line += len(lines) + 1

    def redacted(self, entry: str, native: bytes) -> bytes:
        """The whole file, with other JSON in an entry's place and without the records that may quote it."""
        found = self.log.read(b"", 0)
        quoting, number, parts = self.ledger.quoting(entry), 0, list[bytes]()
        for group in groups(found[1] if found else b"", self.log.path, 1)[0]:
            lines: list[bytes] = []
            ours = isinstance(read_line(group.lines[-1]), CommitLine)
            for data in group.lines[:-1]:
                line = read_line(data)
                if ours and isinstance(line, RecordLine):
                    number += 1
                    if number - 1 in quoting:
                        continue
                if isinstance(line, ConversationLine):
                    data = _json.build(_json.fields(data) | {"file": _encode(new_id())})
                elif isinstance(line, EntryLine) and line.id == entry:
                    data = _with_native(data, native)
                lines.append(data)
            parts.append(closed(lines, unclosed(group.lines[-1])))
        return b"".join((*parts, closed([], line_of(RedactLine(entry=entry, at=now())))))


def _with_native(line: bytes, native: bytes) -> bytes:
    """The line of an entry with other JSON, and with all of its keys that are not known here."""
    members = {key: member for key, member in _json.fields(line).items() if key not in ("native", "native_base64")}
    made = _json.fields(line_of(EntryLine(id="", turn="", role="", at=0, wire="", native=Raw(native))))
    return _json.build(members | {key: made[key] for key in ("native", "native_base64") if key in made})


def _apply(ledger: Ledger, lines: Sequence[Line | None]) -> None:
    close = lines[-1]
    if isinstance(close, CommitLine):
        ledger.apply(commit_of(lines, close))
        head = ledger.head(close.branch, records=False)
        if head is None or (head.entry, head.size) != (close.head, close.size):
            raise ValueError("the head is another one")
    elif isinstance(close, LeaseLine):
        ledger.renew(close.branch, close.token, close.until)
    elif isinstance(close, MetaLine):
        ledger.meta = plain(_meta(close) or {})
    elif isinstance(close, RedactLine):
        ledger.touch(close.entry)


class JSONL(Ledgers):
    """Conversations in a folder. `fsync` makes a commit outlive a power cut, and not only the process.

    At most `keep` conversations stay in memory; the others are read again when somebody asks.
    """

    def __init__(self, folder: str | os.PathLike[str], *, fsync: bool = False, keep: int = 1_000) -> None:
        self._folder = Path(folder)
        self._fsync = fsync
        self._keep = keep
        self._lock = threading.Lock()
        self._talks: OrderedDict[tuple[str, str], _Talk] = OrderedDict()
        self._problems: list[Problem] = []

    def problems(self) -> list[Problem]:
        """What this object has set aside: commits that were torn by a crash."""
        return list(self._problems)

    def _talk(self, owner: str, conversation: str) -> _Talk:
        with self._lock:
            talk = self._talks.pop((owner, conversation), None) or _Talk(self._folder, owner, conversation)
            self._talks[owner, conversation] = talk
            if len(self._talks) > self._keep:
                self._talks.popitem(last=False)
            return talk

    @contextmanager
    def _reading(self, owner: str, conversation: str) -> Iterator[Ledger | None]:
        talk = self._talk(owner, conversation)
        with talk.mutex:
            talk.refresh()
            yield talk.ledger or None

    @contextmanager
    def _writing(self, owner: str, conversation: str) -> Iterator[_Talk]:
        talk = self._talk(owner, conversation)
        with talk.mutex, talk.log.locked():
            talk.refresh()
            if talk.torn:
                self._problems.append(talk.log.set_aside(talk.offset))
                talk.torn = 0
            yield talk

    def _names(self, owner: str) -> list[str]:
        found: list[str] = []
        for path in files(self._folder / name_of(owner)):
            # What has no name of ours is no conversation, nor is one whose first write is under way or was torn.
            with suppress(ValueError):
                name = id_of(path)
                if name is None:
                    header = read_line(first_line(path))
                    name = header.id if isinstance(header, ConversationLine) else ""
                if Log(path.parent, name_of(name)).path == path:
                    found.append(name)
        return found

    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        if commit.expect and not self._talk(owner, conversation).log.path.exists():
            raise Moved(None)
        with self._writing(owner, conversation) as talk:
            talk.ledger.check(commit)
            talk.append(*lines_of(commit, talk.ledger), fsync=self._fsync)
            talk.ledger.apply(commit)
            head = talk.ledger.head(commit.branch)
            if head is None:
                raise Moved(None)
            return head

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        if not self._talk(owner, conversation).log.path.exists():
            return False
        with self._writing(owner, conversation) as talk:
            if not talk.ledger.renew(branch, token, until):
                return False
            talk.append([], line_of(LeaseLine(branch=branch, token=token, until=until)), fsync=self._fsync)
            return True

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any]) -> None:
        if not self._talk(owner, conversation).log.path.exists():
            return
        with self._writing(owner, conversation) as talk:
            if talk.ledger:
                talk.append([], line_of(MetaLine(meta=_raw(meta))), fsync=self._fsync)
                talk.ledger.meta = plain(meta)

    def delete(self, owner: str, conversation: str) -> Receipt | None:
        talk = self._talk(owner, conversation)
        if not talk.log.path.exists():
            return None
        with talk.mutex, talk.log.locked():
            try:
                talk.refresh()
                found = bool(talk.ledger)
            except Damaged:
                # The receipt counts what could be read.
                found = True
            receipt = talk.ledger.receipt(conversation) if found else None
            talk.log.remove()
            talk.forget()
            return receipt

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        if not self._talk(owner, conversation).log.path.exists():
            return False
        with self._writing(owner, conversation) as talk:
            if not talk.ledger.holds(entry):
                return False
            talk.log.replace(talk.redacted(entry, native))
            talk.forget()
            talk.refresh()
            return True

    def close(self) -> None:
        """Forget what was read."""
        with self._lock:
            self._talks.clear()

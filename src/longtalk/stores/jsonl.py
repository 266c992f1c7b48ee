"""Conversations as files that a person can read: one JSON line for each entry, both sides, in the order of events.

A folder per owner, a file per conversation. A commit is one group of lines (see `folder.py`): its entries, the turn
with model, duration, usage and the caller's key, its records, and a line that closes it with branch, revision and head.
Types of lines and keys that are not known here are those of a later version: they are ignored, and kept when a file is
written anew.

A file is read once by each process, and then only what others have appended since.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Raw

from longtalk import _json
from longtalk.stores.base import Commit, Head, KeyTaken, Moved, Receipt
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
from longtalk.stores.ledger import Ledger
from longtalk.stores.lines import (
    FORMAT,
    CommitLine,
    ConversationLine,
    EntryLine,
    LeaseLine,
    Line,
    MetaLine,
    RecordLine,
    RedactLine,
    apply,
    line_of,
    lines_of,
    raw,
    read_line,
)
from longtalk.stores.memory import Ledgers
from longtalk.transcript import new_id, now


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
            apply(self.ledger, lines)
        except (Moved, KeyTaken, ValueError) as problem:
            raise Damaged(self.log.path, number, f"it does not follow from the lines before it ({problem})") from None
        self._line = group.first + len(group.lines)

    @contextmanager
    def both(self) -> Iterator[None]:
        """A change of the file and of what is known of it. One that is cut off (Ctrl-C) is read again from the file."""
        try:
            yield
        except BaseException:
            self.forget()
            raise

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
            close = read_line(group.lines[-1])
            if isinstance(close, MetaLine) and close.entry == entry:
                continue
            ours = isinstance(close, CommitLine)
            for data in group.lines[:-1]:
                line = read_line(data)
                if ours and isinstance(line, RecordLine):
                    number += 1
                    if number - 1 in quoting:
                        continue
                if isinstance(line, ConversationLine):
                    data = _json.build(_json.fields(data) | {"file": _json.encode(new_id())})
                elif isinstance(line, EntryLine) and line.id == entry:
                    data = _with_native(data, native)
                lines.append(data)
            parts.append(closed(lines, unclosed(group.lines[-1])))
        return b"".join((*parts, closed([], line_of(RedactLine(entry=entry, at=now())))))


def _with_native(line: bytes, native: bytes) -> bytes:
    """The line of an entry with other JSON, without the app's own data, with all keys that are not known here."""
    known = ("native", "native_base64", "meta", "meta_base64")
    members = {key: member for key, member in _json.fields(line).items() if key not in known}
    made = _json.fields(line_of(EntryLine(id="", turn="", role="", at=0, wire="", native=Raw(native))))
    return _json.build(members | {key: made[key] for key in ("native", "native_base64") if key in made})


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
        self._damaged: dict[Path, Damaged] = {}

    def __repr__(self) -> str:
        return f"JSONL({str(self._folder)!r})"

    def problems(self) -> list[Problem]:
        """What this object has set aside: commits that were torn by a crash."""
        return list(self._problems)

    def damaged(self) -> list[Damaged]:
        """The files that lists and searches of this object have left out, since they can't be read."""
        return list(self._damaged.values())

    def _each(self, owner: str) -> Iterator[tuple[str, Ledger]]:
        for name in self._names(owner):
            # One that is damaged does not hide the others.
            try:
                with self._reading(owner, name) as ledger:
                    if ledger:
                        yield name, ledger
            except Damaged as problem:
                self._damaged[problem.path] = problem

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
            with talk.both():
                talk.append(*lines_of(commit, talk.ledger), fsync=self._fsync)
                return talk.ledger.write(commit)

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        if not self._talk(owner, conversation).log.path.exists():
            return False
        with self._writing(owner, conversation) as talk, talk.both():
            if not talk.ledger.renew(branch, token, until):
                return False
            talk.append([], line_of(LeaseLine(branch=branch, token=token, until=until)), fsync=self._fsync)
            return True

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        line = line_of(MetaLine(entry=entry, meta=raw(meta)))
        if not self._talk(owner, conversation).log.path.exists():
            return False
        with self._writing(owner, conversation) as talk:
            if not talk.ledger or (entry is not None and not talk.ledger.holds(entry)):
                return False
            with talk.both():
                talk.append([], line, fsync=self._fsync)
                return talk.ledger.describe(meta, entry)

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

    def verify(self, owner: str, conversation: str) -> list[str]:
        """Read the file anew, with all of its checksums."""
        talk = _Talk(self._folder, owner, conversation)
        try:
            talk.refresh()
        except Damaged as problem:
            return [str(problem)]
        return talk.ledger.problems()

    def close(self) -> None:
        """Forget what was read."""
        with self._lock:
            self._talks.clear()

"""The JSONL store: conversations as files that people can read, one JSON line per entry, in the order of events.

Each owner has a folder, and each conversation a file. A commit is one group of lines (see `folder.py`): its entries,
the turn with model, duration, usage and request key, its records, and a closing line with branch, revision and head.
Unknown line types and keys are from a later version: they are ignored, and kept when the file is rewritten.

A process reads a file once, and afterwards only what other processes have appended.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Raw

from longtalk._util import json_bytes
from longtalk.stores._tree import ConversationTree
from longtalk.stores.base import BranchHead, Commit, DeletionReceipt, HeadMoved, RequestKeyTaken
from longtalk.stores.in_memory import TreeStore
from longtalk.stores.jsonl.folder import (
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
from longtalk.stores.jsonl.lines import (
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
from longtalk.transcript.transcript import new_id, now

T = TypeVar("T")


class _Talk:
    """A conversation: its file, and the tree built from the part of the file that was read so far."""

    def __init__(self, folder: Path, owner: str, id: str) -> None:  # noqa: A002
        self.log = Log(folder / name_of(owner), name_of(id))
        self.mutex = threading.RLock()
        self._owner = owner
        self._id = id
        self.forget()

    def forget(self) -> None:
        """Discard the tree, so that the next call reads the file again from the start."""
        self.ledger = ConversationTree()
        self.offset = 0
        self.torn = 0
        """The number of bytes after `offset` that don't form a complete group."""
        self._line = 1
        self._header = b""

    def refresh(self) -> None:
        """Read the lines that were appended to the file since the last call, and apply them to the tree."""
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
            # Read from the start the next time. Until then the tree has the part that was readable.
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
        except (HeadMoved, RequestKeyTaken, ValueError) as problem:
            raise Damaged(self.log.path, number, f"it does not follow from the lines before it ({problem})") from None
        self._line = group.first + len(group.lines)

    @contextmanager
    def both(self) -> Iterator[None]:
        """Guard a change of both the file and the tree: if the change fails or is interrupted, discard the tree.

        The next call then reads the file again, so that the file and the tree agree.
        """
        try:
            yield
        except BaseException:
            self.forget()
            raise

    def append(self, lines: Sequence[bytes], close: bytes, *, fsync: bool) -> None:
        """Write a group of lines to the file. The caller has to apply the change to the tree."""
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
        """Return the new content of the file for a redaction.

        An entry's JSON is replaced by `native`, and the entry's metadata and the records that may quote the entry are
        left out.
        """
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
                    data = json_bytes.build(json_bytes.fields(data) | {"file": json_bytes.encode(new_id())})
                elif isinstance(line, EntryLine) and line.id == entry:
                    data = _with_native(data, native)
                lines.append(data)
            parts.append(closed(lines, unclosed(group.lines[-1])))
        return b"".join((*parts, closed([], line_of(RedactLine(entry=entry, at=now())))))


def _with_native(line: bytes, native: bytes) -> bytes:
    """Return the line of an entry with its JSON replaced and its metadata removed. Unknown keys are kept."""
    known = ("native", "native_base64", "meta", "meta_base64")
    members = {key: member for key, member in json_bytes.fields(line).items() if key not in known}
    made = json_bytes.fields(line_of(EntryLine(id="", turn="", role="", at=0, wire="", native=Raw(native))))
    return json_bytes.build(members | {key: made[key] for key in ("native", "native_base64") if key in made})


class JSONL(TreeStore):
    """A store that keeps conversations as JSONL files in a folder.

    A commit always survives the end of the process; with `fsync`, it also survives a power cut. At most `keep`
    conversations stay in memory; the rest are read again when needed.
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
        """Return the interrupted writes that this store has found and moved out of their files."""
        return list(self._problems)

    def damaged(self) -> list[Damaged]:
        """Return an error for each damaged file that this store has left out of a list or a search."""
        return list(self._damaged.values())

    def _each(self, owner: str) -> Iterator[tuple[str, ConversationTree]]:
        for name in self._names(owner):
            # A damaged conversation must not hide the rest.
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
    def _reading(self, owner: str, conversation: str) -> Iterator[ConversationTree | None]:
        talk = self._talk(owner, conversation)
        with talk.mutex:
            talk.refresh()
            yield talk.ledger or None

    def _writing(self, owner: str, conversation: str, work: Callable[[_Talk], T]) -> T:
        """Call `work` with an up-to-date conversation while nothing else can write to its file. Return the result."""
        talk = self._talk(owner, conversation)

        def refreshed() -> T:
            talk.refresh()
            if talk.torn:
                self._problems.append(talk.log.set_aside(talk.offset))
                talk.torn = 0
            return work(talk)

        with talk.mutex:
            return talk.log.locked(refreshed)

    def _names(self, owner: str) -> list[str]:
        found: list[str] = []
        for path in files(self._folder / name_of(owner)):
            # Skip files that this store hasn't named, and files whose first write is in progress or was interrupted.
            with suppress(ValueError):
                name = id_of(path)
                if name is None:
                    header = read_line(first_line(path))
                    name = header.id if isinstance(header, ConversationLine) else ""
                if Log(path.parent, name_of(name)).path == path:
                    found.append(name)
        return found

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        if commit.expect and not self._talk(owner, conversation).log.path.exists():
            raise HeadMoved(None)

        def work(talk: _Talk) -> BranchHead:
            talk.ledger.check(commit)
            with talk.both():
                talk.append(*lines_of(commit, talk.ledger), fsync=self._fsync)
                return talk.ledger.write(commit)

        return self._writing(owner, conversation, work)

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        def work(talk: _Talk) -> bool:
            with talk.both():
                if not talk.ledger.renew(branch, token, until):
                    return False
                talk.append([], line_of(LeaseLine(branch=branch, token=token, until=until)), fsync=self._fsync)
                return True

        return self._changing(owner, conversation, work)

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        line = line_of(MetaLine(entry=entry, meta=raw(meta)))

        def work(talk: _Talk) -> bool:
            if not talk.ledger or (entry is not None and not talk.ledger.holds(entry)):
                return False
            with talk.both():
                talk.append([], line, fsync=self._fsync)
                return talk.ledger.describe(meta, entry)

        return self._changing(owner, conversation, work)

    def delete(self, owner: str, conversation: str) -> DeletionReceipt | None:
        talk = self._talk(owner, conversation)
        if not talk.log.path.exists():
            return None

        def work() -> DeletionReceipt | None:
            try:
                talk.refresh()
                found = bool(talk.ledger)
            except Damaged:
                # Delete it anyway. The receipt counts the part that was readable.
                found = True
            receipt = talk.ledger.receipt(conversation) if found else None
            talk.log.remove()
            talk.forget()
            return receipt

        with talk.mutex:
            return talk.log.locked(work)

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        def work(talk: _Talk) -> bool:
            if not talk.ledger.holds(entry):
                return False
            talk.log.replace(talk.redacted(entry, native))
            talk.forget()
            talk.refresh()
            return True

        return self._changing(owner, conversation, work)

    def _changing(self, owner: str, conversation: str, work: Callable[[_Talk], bool]) -> bool:
        """Call `work` as `_writing` does and return its result, or return False if the conversation doesn't exist."""
        if not self._talk(owner, conversation).log.path.exists():
            return False
        return self._writing(owner, conversation, work)

    def verify(self, owner: str, conversation: str) -> list[str]:
        """Read the whole file again, check all checksums, and return a description of each problem."""
        talk = _Talk(self._folder, owner, conversation)
        try:
            talk.refresh()
        except Damaged as problem:
            return [str(problem)]
        return talk.ledger.problems()

    def close(self) -> None:
        """Discard the conversations in memory."""
        with self._lock:
            self._talks.clear()

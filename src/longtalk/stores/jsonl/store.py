"""The JSONL store: conversations as human-readable files, one JSON line per entry, in the order of events.

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
from longtalk.stores._redaction import REDACTED, get_turn_id
from longtalk.stores._tree import ConversationTree
from longtalk.stores.base import BranchHead, Commit, DeletionReceipt, HeadMoved, RequestKeyTaken
from longtalk.stores.in_memory import TreeStore
from longtalk.stores.jsonl.errors import Damaged, FileError, NewerFormat
from longtalk.stores.jsonl.folder import (
    Group,
    InterruptedWrite,
    Log,
    format_group,
    list_files,
    parse_file_name,
    parse_groups,
    read_first_line,
    strip_closing,
    to_file_name,
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
    TurnLine,
    apply_group,
    commit_to_lines,
    encode_line,
    meta_to_raw,
    parse_line,
)
from longtalk.transcript.transcript import new_id, now

T = TypeVar("T")


class _ConversationFile:
    """The file of a conversation, and the tree built from the part of the file that was read so far."""

    def __init__(self, folder: Path, owner: str, id: str) -> None:  # noqa: A002
        self.log = Log(folder / to_file_name(owner), to_file_name(id))
        self.mutex = threading.RLock()
        self._owner = owner
        self._id = id
        self.discard_tree()

    def discard_tree(self) -> None:
        """Discard the tree, so that the next call reads the file again from the start."""
        self.tree = ConversationTree()
        self.offset = 0
        self.torn_size = 0
        """The number of bytes after `offset` that don't form a complete group."""
        self._line = 1
        self._header = b""

    def refresh(self) -> None:
        """Read the lines that were appended to the file since the last call, and apply them to the tree."""
        found = self.log.read(self._header, self.offset)
        if found is None or not found[0]:
            self.discard_tree()
        if found is None:
            return
        try:
            complete, size = parse_groups(found[1], self.log.path, self._line)
            if complete and not self.offset:
                self._check_header(complete[0])
            for group in complete:
                self._apply_group(group)
        except BaseException:
            # Next time, read from the start again. Until then, the tree has the part that could be read.
            self.offset = 0
            raise
        self.offset += size
        self.torn_size = len(found[1]) - size

    def _check_header(self, first: Group) -> None:
        """Raise `Damaged` unless the first group of the file begins with the header of this conversation."""
        path = self.log.path
        try:
            header = parse_line(first.lines[0])
        except ValueError as problem:
            raise Damaged(path, 1, f"it can't be decoded ({problem})") from None
        if not isinstance(header, ConversationLine):
            raise Damaged(path, 1, "the first line of a file must be of type 'conversation'")
        if header.format > FORMAT:
            raise NewerFormat(path, header.format, FORMAT)
        if (header.owner, header.id) != (self._owner, self._id):
            raise Damaged(
                path,
                1,
                f"the file contains conversation {header.id!r} of owner {header.owner!r}, but its name belongs to "
                f"conversation {self._id!r} of owner {self._owner!r}",
            )
        self._header = first.lines[0] + b"\n"

    def _apply_group(self, group: Group) -> None:
        """Apply a group of lines to the tree. Raise `Damaged` if a line is invalid or doesn't fit the tree."""
        lines: list[Line | None] = []
        number = group.first
        try:
            for number, line in enumerate(group.lines, group.first):  # noqa: B007
                lines.append(parse_line(line))
            apply_group(self.tree, lines)
        except (HeadMoved, RequestKeyTaken, ValueError) as problem:
            raise Damaged(
                self.log.path, number, f"it is invalid or contradicts the lines before it ({problem})"
            ) from None
        self._line = group.first + len(group.lines)

    @contextmanager
    def discard_on_failure(self) -> Iterator[None]:
        """Discard the tree if the body, which changes the file and the tree, fails or is interrupted.

        The next call then reads the file again, so that the file and the tree agree.
        """
        try:
            yield
        except BaseException:
            self.discard_tree()
            raise

    def append(self, lines: Sequence[bytes], close: bytes, *, fsync: bool) -> None:
        """Write a group of lines to the file. The caller has to apply the change to the tree."""
        if not self.offset:
            header = ConversationLine(format=FORMAT, id=self._id, owner=self._owner, file=new_id())
            lines = [encode_line(header), *lines]
        data = format_group(lines, close)
        self.log.append(data, self.offset, fsync=fsync)
        if not self.offset:
            self._header = lines[0] + b"\n"
        self.offset += len(data)
        self._line += len(lines) + 1

    def render_redacted(self, entry: str, native: bytes) -> bytes:
        """Return the content of the file with an entry redacted.

        The entry's JSON is replaced by `native`. The entry's metadata and everything that may quote the entry are left
        out.
        """
        found = self.log.read(b"", 0)
        quoting, number, parts = self.tree.find_quoting_records(entry), 0, list[bytes]()
        for group in parse_groups(found[1] if found else b"", self.log.path, 1)[0]:
            lines: list[bytes] = []
            close = parse_line(group.lines[-1])
            if isinstance(close, MetaLine) and close.entry == entry:
                continue
            is_commit = isinstance(close, CommitLine)
            for data in group.lines[:-1]:
                line = parse_line(data)
                if is_commit and isinstance(line, RecordLine):
                    number += 1
                    if number - 1 in quoting:
                        continue
                if isinstance(line, ConversationLine):
                    data = json_bytes.build(json_bytes.fields(data) | {"file": json_bytes.encode(new_id())})
                elif isinstance(line, EntryLine) and line.id == entry:
                    data = _replace_native(data, native)
                elif isinstance(line, TurnLine):
                    data = _redact_turn(data, with_digest=line.id != get_turn_id(entry))
                lines.append(data)
            parts.append(format_group(lines, strip_closing(group.lines[-1])))
        return b"".join((*parts, format_group([], encode_line(RedactLine(entry=entry, at=now())))))


def _replace_native(line: bytes, native: bytes) -> bytes:
    """Return an entry's line with `native` as the entry's JSON and without metadata. Unknown keys are kept."""
    known = ("native", "native_base64", "meta", "meta_base64")
    members = {key: member for key, member in json_bytes.fields(line).items() if key not in known}
    new = json_bytes.fields(encode_line(EntryLine(id="", turn="", role="", at=0, wire="", native=Raw(native))))
    return json_bytes.build(members | {key: new[key] for key in ("native", "native_base64") if key in new})


def _redact_turn(line: bytes, *, with_digest: bool) -> bytes:
    """Remove the text of the error and the responses from the line of a turn.

    Unless `with_digest`, the digest of its request is removed too.
    """
    known = ("responses", "responses_base64")
    members = {key: member for key, member in json_bytes.fields(line).items() if key not in known}
    if "error" in members:
        members["error"] = json_bytes.encode(REDACTED)
    if not with_digest and members.get("request", b"null") != b"null":
        members["request"] = json_bytes.build(json_bytes.fields(members["request"]) | {"body": b'""'})
    return json_bytes.build(members)


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
        self._files: OrderedDict[tuple[str, str], _ConversationFile] = OrderedDict()
        self._interrupted_writes: list[InterruptedWrite] = []
        self._damaged_files: dict[Path, FileError] = {}

    def __repr__(self) -> str:
        return f"JSONL({str(self._folder)!r})"

    def list_interrupted_writes(self) -> list[InterruptedWrite]:
        """Return the interrupted writes that this store has moved out of conversation files."""
        return list(self._interrupted_writes)

    def list_damaged_files(self) -> list[FileError]:
        """Return an error for each damaged or unreadable file that this store has left out of a list or a search."""
        return list(self._damaged_files.values())

    def _use_trees(self, owner: str, work: Callable[[str, ConversationTree], T]) -> list[T]:
        results: list[T] = []
        for name in self._list_ids(owner):
            # A file that can't be read must not hide the rest.
            with self._note_damage():
                results += self._use_existing(owner, name, work)
        return results

    @contextmanager
    def _note_damage(self) -> Iterator[None]:
        """Suppress an error about a single file, and remember the error for `list_damaged_files`."""
        try:
            yield
        except FileError as problem:
            self._damaged_files[problem.path] = problem

    def _get_file(self, owner: str, conversation: str) -> _ConversationFile:
        with self._lock:
            file = self._files.pop((owner, conversation), None) or _ConversationFile(self._folder, owner, conversation)
            self._files[owner, conversation] = file
            if len(self._files) > self._keep:
                self._files.popitem(last=False)
            return file

    def _use_tree(self, owner: str, conversation: str, work: Callable[[ConversationTree | None], T]) -> T:
        file = self._get_file(owner, conversation)
        with file.mutex:
            file.refresh()
            return work(file.tree or None)

    def _run_locked(self, owner: str, conversation: str, work: Callable[[_ConversationFile], T]) -> T:
        """Lock a conversation's file, read what was appended to it, and return the result of calling `work` with it."""
        file = self._get_file(owner, conversation)

        def refresh_and_work() -> T:
            file.refresh()
            if file.torn_size:
                self._interrupted_writes.append(file.log.set_aside(file.offset))
                file.torn_size = 0
            return work(file)

        with file.mutex:
            return file.log.run_locked(refresh_and_work)

    def _list_ids(self, owner: str) -> list[str]:
        found: list[str] = []
        for path in list_files(self._folder / to_file_name(owner)):
            # Skip files that this store hasn't named, and files whose first write is in progress or was interrupted.
            with suppress(ValueError), self._note_damage():
                name = parse_file_name(path)
                if name is None:
                    header = parse_line(read_first_line(path))
                    name = header.id if isinstance(header, ConversationLine) else ""
                if Log(path.parent, to_file_name(name)).path == path:
                    found.append(name)
        return found

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        if commit.expect and not self._get_file(owner, conversation).log.exists():
            raise HeadMoved(None)

        def work(file: _ConversationFile) -> BranchHead:
            file.tree.check(commit)
            with file.discard_on_failure():
                file.append(*commit_to_lines(commit, file.tree), fsync=self._fsync)
                return file.tree.write(commit)

        return self._run_locked(owner, conversation, work)

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        def work(file: _ConversationFile) -> bool:
            with file.discard_on_failure():
                if not file.tree.renew(branch, token, until):
                    return False
                file.append([], encode_line(LeaseLine(branch=branch, token=token, until=until)), fsync=self._fsync)
                return True

        return self._change_existing(owner, conversation, work)

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        line = encode_line(MetaLine(entry=entry, meta=meta_to_raw(meta)))

        def work(file: _ConversationFile) -> bool:
            if not file.tree or (entry is not None and not file.tree.has_entry(entry)):
                return False
            with file.discard_on_failure():
                file.append([], line, fsync=self._fsync)
                return file.tree.describe(meta, entry)

        return self._change_existing(owner, conversation, work)

    def delete(self, owner: str, conversation: str) -> DeletionReceipt | None:
        file = self._get_file(owner, conversation)
        if not file.log.exists():
            return None

        def work() -> DeletionReceipt | None:
            try:
                file.refresh()
                found = bool(file.tree)
            except FileError:
                # Delete the conversation anyway. The receipt counts the part that could be read.
                found = True
            receipt = file.tree.make_receipt(conversation) if found else None
            file.log.remove()
            file.discard_tree()
            return receipt

        with file.mutex:
            return file.log.run_locked(work)

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        def work(file: _ConversationFile) -> bool:
            if not file.tree.has_entry(entry):
                return False
            with file.discard_on_failure():
                file.log.replace(file.render_redacted(entry, native))
            file.discard_tree()
            file.refresh()
            return True

        return self._change_existing(owner, conversation, work)

    def _change_existing(self, owner: str, conversation: str, work: Callable[[_ConversationFile], bool]) -> bool:
        """Call `work` as `_run_locked` does, but return False if the conversation doesn't exist."""
        if not self._get_file(owner, conversation).log.exists():
            return False
        return self._run_locked(owner, conversation, work)

    def verify(self, owner: str, conversation: str) -> list[str]:
        """Read the whole file again, check all checksums, and return a description of each problem."""
        file = _ConversationFile(self._folder, owner, conversation)
        try:
            file.refresh()
        except FileError as problem:
            return [str(problem)]
        return file.tree.find_problems()

    def close(self) -> None:
        """Discard the conversations in memory."""
        with self._lock:
            self._files.clear()

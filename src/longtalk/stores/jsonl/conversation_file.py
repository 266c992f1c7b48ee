"""The file of a conversation, and the tree that is built from its lines."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Raw

from longtalk._util import json_bytes
from longtalk.stores._redaction import REDACTED, get_turn_id
from longtalk.stores._tree import ConversationTree
from longtalk.stores.base import HeadMoved, RequestKeyTaken
from longtalk.stores.jsonl.errors import Damaged, NewerFormat
from longtalk.stores.jsonl.folder import Acknowledged, Log, to_file_name
from longtalk.stores.jsonl.groups import START, Group, format_group, parse_groups, strip_closing
from longtalk.stores.jsonl.lines import (
    FORMAT,
    CommitLine,
    ConversationLine,
    EntryLine,
    Line,
    MetaLine,
    RecordLine,
    RedactLine,
    TurnLine,
    apply_group,
    encode_line,
    parse_line,
)
from longtalk.transcript.transcript import new_id, now


class ConversationFile:
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
        self.end = START
        """The point up to which the file was read."""
        self.torn_size = 0
        """The number of bytes after `end` that don't form a complete group."""
        self.unchained = 0
        """The number of groups at the end that don't say what is before them."""
        self._line = 1
        self._header = b""
        self._file = ""

    def refresh(self) -> None:
        """Read the lines that were appended to the file since the last call, and apply them to the tree."""
        found = self.log.read(self._header, self.end.size)
        if found is None or not found[0]:
            self.discard_tree()
        if found is None:
            return
        try:
            complete, size = parse_groups(found[1], self.log.path, self._line, self.end)
            if complete and not self.end.size:
                self._check_header(complete[0])
            for group in complete:
                self._apply_group(group)
        except BaseException:
            # Next time, read from the start again. Until then, the tree has the part that could be read.
            self.end = START
            raise
        self.end = complete[-1].end if complete else self.end
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
        self._header, self._file = first.lines[0] + b"\n", header.file

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
        self.unchained = 0 if group.is_chained else self.unchained + 1

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
        before = self.end
        if not before.size:
            header = ConversationLine(format=FORMAT, id=self._id, owner=self._owner, file=new_id())
            lines = [encode_line(header), *lines]
            self._header, self._file = lines[0] + b"\n", header.file
        data = format_group(lines, close, before)
        self.log.append(data, before.size, fsync=fsync)
        self.end = before.advance(data)
        self.unchained = 0
        self._line += len(lines) + 1
        self.log.acknowledge(self._file, before, self.end)

    def replace(self, data: bytes) -> None:
        """Replace the content of the file."""
        with self.discard_on_failure():
            self.log.replace(data)
        self.discard_tree()
        self.refresh()
        self.log.acknowledge(self._file, START, self.end)

    def find_cut(self, note: Acknowledged | None) -> list[str]:
        """Describe what is missing from the file, if the note of its last writer says that it was longer."""
        if note is None or self._file not in ("", note.file):
            return []
        path = self.log.path
        remedy = f"Restore it from a backup, or delete {path.with_suffix('.lock').name} to accept it as it is"
        if self.end.size < note.size:
            return [f"{path} was cut: it has {self.end.size} of {note.size} bytes that were acknowledged. {remedy}"]
        found = self.log.read(b"", 0)
        if found is None or START.advance(found[1][: note.size]) != note.point:
            return [f"{path} was replaced: its first {note.size} bytes are not those that were acknowledged. {remedy}"]
        return []

    def find_uncovered(self, note: Acknowledged | None) -> list[str]:
        """Describe the parts of the file for which `verify` can't tell whether they are complete."""
        if not self._file:
            return []
        if note is None or note.file != self._file:
            found = [f"the end of {self.log.path}, because no lock file says how long it was"]
        elif note.size < self.end.size:
            found = [f"the last {self.end.size - note.size} bytes of {self.log.path}, not counted in its lock file"]
        else:
            return []
        if self.unchained:
            found.append(f"the order of the last {self.unchained} commits, written before commits were chained")
        return found

    def render_redacted(self, entry: str, native: bytes) -> bytes:
        """Return the content of the file with an entry redacted.

        The entry's JSON is replaced by `native`. The entry's metadata and everything that may quote the entry are left
        out.
        """
        found = self.log.read(b"", 0)
        quoting, number, parts = self.tree.find_quoting_records(entry), 0, list[bytes]()
        end = START
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
            parts.append(format_group(lines, strip_closing(group.lines[-1]), end))
            end = end.advance(parts[-1])
        return b"".join((*parts, format_group([], encode_line(RedactLine(entry=entry, at=now())), end)))


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

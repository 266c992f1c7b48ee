"""Groups of lines in a conversation's JSONL file.

Lines are written in *groups*, each group in one write. The last line of a group closes the group. It ends with the
number of bytes in the file before the group and their checksum, the number of lines before it, and a checksum of the
whole group: `…,"after":512,"chain":"9f8e7d6c","lines":3,"sum":"0a1b2c3d"}`. Earlier versions wrote no `after` and
`chain`.

A reader stops after the last complete group. Bytes after that belong to a write that is in progress or was interrupted.
If the content differs in any other way from what was written, `Damaged` is raised, with the file and the line; damaged
lines are never skipped.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from longtalk._util import json_bytes
from longtalk.stores.jsonl.errors import Damaged

_CLOSING = re.compile(rb',"lines":(\d{1,9}),"sum":"([0-9a-f]{8})"\}')
_CHAIN = re.compile(rb',"after":(\d{1,18}),"chain":"([0-9a-f]{8})"\Z')
_MAX_CHAIN = 64


class Point(NamedTuple):
    """A point in a file: the number of bytes before it, and their checksum."""

    size: int
    crc: int

    def advance(self, data: bytes) -> Point:
        """Return the point after `data`, which follows this point."""
        return Point(self.size + len(data), zlib.crc32(data, self.crc))


START = Point(0, 0)


class Group(NamedTuple):
    """Lines that were written together. The last line closes the group."""

    first: int
    """The number of the group's first line in the file."""
    lines: list[bytes]
    end: Point
    """The point after the group."""
    is_chained: bool
    """Whether the group says what is before it."""


def format_group(lines: Sequence[bytes], close: bytes, before: Point | None = None) -> bytes:
    """Return the bytes of a group: its lines, then the JSON object `close` with line count and checksum added.

    `before` is the point in the file at which the group begins.
    """
    chain = b',"after":%d,"chain":"%08x"' % before if before is not None else b""
    data = b"".join([line + b"\n" for line in lines]) + close[:-1] + chain + b',"lines":%d' % len(lines)
    return b'%s,"sum":"%08x"}\n' % (data, zlib.crc32(data))


def strip_closing(line: bytes) -> bytes:
    """Return the JSON object in a group's closing line, without the line count and checksums."""
    closing = _match_closing(line)
    if closing is None:
        return line
    chain = _match_chain(line, closing)
    return line[: (chain or closing).start()] + b"}"


def parse_groups(data: bytes, path: Path, line: int, before: Point = START) -> tuple[list[Group], int]:
    """Return the complete groups in `data` and their total size in bytes.

    `data` is the content of the file `path` from line number `line` and the point `before` on. Raises `Damaged` if a
    group has a wrong line count or checksum, if what it says about the lines before it is wrong, or if the data after
    the last complete group can't be an interrupted write.
    """
    found: list[Group] = []
    start = offset = 0
    lines: list[bytes] = []
    while (end := data.find(b"\n", offset)) >= 0:
        lines.append(data[offset:end])
        offset = end + 1
        closing = _match_closing(lines[-1])
        if closing is None:
            continue
        if not _is_intact(data[start:end], closing, len(lines)):
            if offset == len(data) and _has_blank_blocks(data[start:]):
                return found, start
            raise _locate_damage(lines, path, line)
        chain = _match_chain(lines[-1], closing)
        if chain is not None and (int(chain[1]), int(chain[2], 16)) != before:
            last = line + len(lines) - 1
            raise Damaged(path, last, "lines before this commit are missing or were changed: their checksum is wrong")
        before = before.advance(data[start:offset])
        found.append(Group(line, lines, before, chain is not None))
        line, lines, start = line + len(lines), [], offset
    if not _has_blank_blocks(data[start:]):
        # An interrupted write leaves whole lines, none of which closes a group, and perhaps part of a line.
        for number, each in enumerate(lines, line):
            if "lines" in _parse_members(each, path, number):
                raise Damaged(path, number, "it closes a commit, but has no valid line count and checksum")
    return found, start


def _has_blank_blocks(data: bytes) -> bool:
    """Return whether the data contains blocks of zero bytes, which a power cut during a write can leave."""
    return bytes(64) in data or data[:1] == b"\0" or data[-1:] == b"\0"


def _match_closing(line: bytes) -> re.Match[bytes] | None:
    """Match the line count and checksum at the end of a line. Return None if the line doesn't close a group."""
    # Inside a JSON string the quotes would be escaped, so this is a member. Only one bracket may follow it.
    at = line.rfind(b',"lines":')
    return _CLOSING.fullmatch(line, at) if at > 0 else None


def _match_chain(line: bytes, closing: re.Match[bytes]) -> re.Match[bytes] | None:
    """Match what a closing line says about the lines before its group. Return None if it says nothing."""
    # A match can't be inside a value, because a bracket would follow it.
    end = closing.start()
    return _CHAIN.search(line, max(0, end - _MAX_CHAIN), end)


def _is_intact(data: bytes, closing: re.Match[bytes], lines: int) -> bool:
    before = data[: data.rindex(b',"sum":"')]
    return int(closing[1]) == lines - 1 and zlib.crc32(before) == int(closing[2], 16)


def _locate_damage(lines: list[bytes], path: Path, first: int) -> Damaged:
    """Return the error for a group with a wrong line count or checksum.

    The error names the first line that can't be parsed or, if all lines can be parsed, the last line of the group.
    """
    for number, line in enumerate(lines, first):
        try:
            _parse_members(line, path, number)
        except Damaged as problem:
            return problem
    last = first + len(lines) - 1
    return Damaged(path, last, f"the line count or checksum of the commit in lines {first} to {last} is wrong")


def _parse_members(line: bytes, path: Path, number: int) -> dict[str, bytes]:
    """Return the members of the JSON object in a line. Raise `Damaged` if the line can't be parsed."""
    try:
        line.decode()
        return json_bytes.fields(line)
    except ValueError as problem:
        raise Damaged(path, number, f"it is not a JSON object in UTF-8 ({problem})") from None

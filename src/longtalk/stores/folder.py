"""Files of lines that are only ever appended to: where they lie, who may write, and what a crash leaves.

Lines come in *groups*, each written at once. The last line of a group closes it: it ends in the number of lines before
it and in a checksum of all that was written, `…,"lines":3,"sum":"0a1b2c3d"}`. A reader stops behind the last group that
is whole. What follows is a write that is under way or was torn; the next writer sets it aside. Anything else that is
not as it was written is damage: `Damaged` names the file and the line, and nothing is skipped.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from longtalk import _json
from longtalk.errors import LongtalkError
from longtalk.transcript import new_id, now

SUFFIX = ".jsonl"

_CLOSING = re.compile(rb',"lines":(\d{1,9}),"sum":"([0-9a-f]{8})"\}')
_PLAIN = re.compile(rb"[a-z0-9_-]")
_RESERVED = re.compile(r"con|prn|aux|nul|(com|lpt)[0-9]")
_LONG = 100
_FLAGS: int = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Damaged(LongtalkError):
    """A file is not as it was written. `path` and `line` are where."""

    def __init__(self, path: Path, line: int, what: str) -> None:
        super().__init__(f"Line {line} of {path} is damaged: {what}. Restore the file, or move it away.")
        self.path = path
        self.line = line


class Problem(msgspec.Struct, frozen=True):
    """A write that was torn, and was never acknowledged."""

    file: Path
    kept: Path
    """Where the bytes are that were taken out of the file."""
    size: int
    at: int


class Group(NamedTuple):
    """Lines that were written at once. The last one closes the group."""

    first: int
    """The number of the first line in the file."""
    lines: list[bytes]


def name_of(id: str) -> str:  # noqa: A002
    """A file name for an id: small letters, digits, `_` and `-` as they are, all else escaped, what is long hashed.

    Different ids have different names, also where a file system takes capital letters for small ones.
    """
    data = id.encode("utf-8", "surrogatepass")
    name = "".join(chr(byte) if _PLAIN.match(bytes((byte,))) else f"%{byte:02x}" for byte in data)
    if len(name) > _LONG:
        return f"{name[:30]}~{hashlib.sha256(data).hexdigest()}"
    if _RESERVED.fullmatch(name):
        return f"%{data[0]:02x}{name[1:]}"
    return name or "%"


def id_of(path: Path) -> str | None:
    """The id that the name of a file stands for; None when it can't be told."""
    name = path.name.removesuffix(SUFFIX)
    if "~" in name:
        return None
    data = re.sub(rb"%([0-9a-f]{2})", lambda m: bytes((int(m[1], 16),)), os.fsencode(name))
    return "" if name == "%" else data.decode("utf-8", "surrogatepass")


def files(folder: Path) -> list[Path]:
    """The files of lines in a folder; none when it is not there."""
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []


def first_line(path: Path) -> bytes:
    """The first line of a file; nothing when it has gone."""
    try:
        with path.open("rb") as file:
            return file.readline()
    except FileNotFoundError:
        return b""


def closed(lines: Sequence[bytes], close: bytes) -> bytes:
    """A group: its lines, and the JSON object that closes it."""
    data = b"".join([line + b"\n" for line in lines]) + close[:-1] + b',"lines":%d' % len(lines)
    return b'%s,"sum":"%08x"}\n' % (data, zlib.crc32(data))


def unclosed(line: bytes) -> bytes:
    """A closing line as the JSON object that it was made of."""
    closing = _closing(line)
    return line[: closing.start()] + b"}" if closing else line


def groups(data: bytes, path: Path, line: int) -> tuple[list[Group], int]:
    """The whole groups in what a file holds from a line on, and how many bytes they are."""
    found: list[Group] = []
    start = position = 0
    lines: list[bytes] = []
    while (end := data.find(b"\n", position)) >= 0:
        lines.append(data[position:end])
        position = end + 1
        closing = _closing(lines[-1])
        if closing is None:
            continue
        if not _is_whole(data[start:end], closing, len(lines)):
            if position == len(data) and _is_blank(data[start:]):
                return found, start
            raise _changed(lines, path, line)
        found.append(Group(line, lines))
        line, lines, start = line + len(lines), [], position
    if not _is_blank(data[start:]):
        # A torn write is the beginning of one: its lines are whole, and none of them closes it.
        for number, each in enumerate(lines, line):
            if "lines" in _members(each, path, number):
                raise Damaged(path, number, "it can't be read")
    return found, start


def _is_blank(data: bytes) -> bool:
    """Whether a power cut came before a write was on the disk: noughts stand where blocks should be."""
    return bytes(64) in data or data[:1] == b"\0" or data[-1:] == b"\0"


def _closing(line: bytes) -> re.Match[bytes] | None:
    # The name of a member is never inside a text, where its quotes would be escaped, and here one bracket follows.
    at = line.rfind(b',"lines":')
    return _CLOSING.fullmatch(line, at) if at > 0 else None


def _is_whole(data: bytes, closing: re.Match[bytes], lines: int) -> bool:
    before = data[: data.rindex(b',"sum":"')]
    return int(closing[1]) == lines - 1 and zlib.crc32(before) == int(closing[2], 16)


def _changed(lines: list[bytes], path: Path, first: int) -> Damaged:
    """What to say of lines that are not those that were written."""
    for number, line in enumerate(lines, first):
        try:
            _members(line, path, number)
        except Damaged as problem:
            return problem
    last = first + len(lines) - 1
    return Damaged(path, last, f"the lines {first} to {last} are not those that were written")


def _members(line: bytes, path: Path, number: int) -> dict[str, bytes]:
    try:
        line.decode()
        return _json.fields(line)
    except ValueError as problem:
        raise Damaged(path, number, f"it can't be read ({problem})") from None


class Log:
    """A file of lines, with its lock and what was set aside beside it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}{SUFFIX}"
        self._folder = folder
        self._name = name
        self._lock = folder / f"{name}.lock"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes meanwhile, in any process."""
        while True:
            try:
                held = os.open(self._lock, os.O_RDWR | os.O_CREAT | _FLAGS, 0o666)
            except FileNotFoundError:
                try:
                    self._folder.mkdir(parents=True, exist_ok=True)
                except FileExistsError:
                    # Who has deleted the last conversation in it may just have removed it.
                    if self._folder.is_symlink():
                        raise
                continue
            try:
                _wait_for(held)
                if not self._is_lock(held):
                    continue
                try:
                    yield
                finally:
                    if not self.path.exists():
                        with suppress(OSError):
                            self._lock.unlink()
                            self._folder.rmdir()
                return
            finally:
                try:
                    # A copy that this process forked meanwhile has the file open too, and would keep the lock.
                    _let_go(held)
                finally:
                    os.close(held)

    def _is_lock(self, file: int) -> bool:
        """Whether this is the lock of today: whoever had it before may have removed it, and there may be another."""
        try:
            return os.path.samestat(os.fstat(file), os.stat(self._lock))
        except FileNotFoundError:
            return False

    def read(self, header: bytes, offset: int) -> tuple[int, bytes] | None:
        """What is behind an offset of the file that begins with this header; all of it when it is another file."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return None
        with file:
            if offset and (os.fstat(file.fileno()).st_size < offset or file.read(len(header)) != header):
                offset = 0
            file.seek(offset)
            return offset, file.read()

    def append(self, data: bytes, offset: int, *, fsync: bool) -> None:
        """Write at the end, which is at this offset; whole, or not at all."""
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _FLAGS, 0o666)
        try:
            _write(file, data)
            if fsync:
                os.fsync(file)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(file, offset)
            raise
        finally:
            os.close(file)
        if fsync and not offset:
            _fsync(self._folder)

    def set_aside(self, offset: int) -> Problem:
        """Move what is behind an offset into a file of its own."""
        kept = self._beside("torn")
        with self.path.open("rb+") as file:
            file.seek(offset)
            torn = file.read()
            self._create(kept, torn)
            file.truncate(offset)
        return Problem(self.path, kept, len(torn), now())

    def replace(self, data: bytes) -> None:
        """Put another file in the place of this one, at once, and remove what was set aside."""
        made = self._beside("new")
        self._create(made, data)
        made.replace(self.path)
        _fsync(self._folder)
        self._tidy()

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self._tidy()

    def _tidy(self) -> None:
        for name in os.listdir(self._folder):
            if name.startswith((f"{self._name}.torn-", f"{self._name}.new-")):
                (self._folder / name).unlink(missing_ok=True)

    def _beside(self, what: str) -> Path:
        return self._folder / f"{self._name}.{what}-{now()}-{new_id()[:4]}"

    def _create(self, path: Path, data: bytes) -> None:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o666)
        try:
            _write(file, data)
            os.fsync(file)
        finally:
            os.close(file)


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _fsync(folder: Path) -> None:
    """So that the name of a new file outlives a power cut. Windows has no such thing."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


if sys.platform == "win32":
    import msvcrt

    def _wait_for(file: int) -> None:
        while True:
            # It gives up after ten seconds.
            with suppress(OSError):
                msvcrt.locking(file, msvcrt.LK_LOCK, 1)
                return

    def _let_go(file: int) -> None:
        with suppress(OSError):
            msvcrt.locking(file, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _wait_for(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)

    def _let_go(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)

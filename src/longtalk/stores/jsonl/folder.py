"""Append-only files of lines: their names, locks and writes, and their recovery after a crash.

Lines are written in groups, each in one write (see `groups.py`). The next writer moves an interrupted write to a
separate file.

A writer notes in the lock file how long the file is after its write, with a checksum (`Acknowledged`). The note shows
if the end of the file is cut off later. It may be older than the file, after a crash between the two writes, but not
newer. A writer that finds a note which contradicts the file leaves it there, so that the damage stays visible.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

import msgspec

from longtalk._util import typed_json
from longtalk._util.file_locks import lock_file
from longtalk._util.private_files import make_private_folder, open_or_create_private, open_private
from longtalk._util.processes import on_fork
from longtalk.stores.jsonl.errors import describe_os_error, translates_os_errors
from longtalk.stores.jsonl.groups import START, Point
from longtalk.transcript.transcript import new_id, now

T = TypeVar("T")

SUFFIX = ".jsonl"

_PLAIN = re.compile(rb"[a-z0-9_-]")
_RESERVED = re.compile(r"con|prn|aux|nul|(com|lpt)[0-9]")
_MAX_NAME = 100
_NOTE_SIZE = 120
"""The size of a note in bytes, without its newline. Notes of one size replace each other in one write."""


class InterruptedWrite(msgspec.Struct, frozen=True):
    """A write that a crash interrupted. The store never reported it as saved."""

    file: Path
    moved_to: Path
    """The file that the interrupted write was moved to."""
    size: int
    """The number of bytes that were moved."""
    at: int


class Acknowledged(msgspec.Struct, frozen=True):
    """The note in a lock file: how long the file was after the last write that was acknowledged."""

    file: str
    """The id of the file. It changes when a redaction replaces the file."""
    size: int
    crc: str = msgspec.field(name="sum")
    """The checksum of the first `size` bytes."""

    @property
    def point(self) -> Point:
        return Point(self.size, int(self.crc, 16))


def to_file_name(id: str) -> str:  # noqa: A002
    """Return the file name for the id of an owner or a conversation, without the suffix.

    Lowercase letters, digits, `_` and `-` stay as they are, all other bytes are escaped, and long names are hashed.
    Different ids have different names, even on a file system that ignores case.
    """
    data = id.encode("utf-8", "surrogatepass")
    name = "".join(chr(byte) if _PLAIN.match(bytes((byte,))) else f"%{byte:02x}" for byte in data)
    if len(name) > _MAX_NAME:
        return f"{name[:30]}~{hashlib.sha256(data).hexdigest()}"
    if _RESERVED.fullmatch(name):
        return f"%{data[0]:02x}{name[1:]}"
    return name or "%"


def parse_file_name(path: Path) -> str | None:
    """Return the id from which a file name was made, or None if the name contains a hash."""
    name = path.name.removesuffix(SUFFIX)
    if "~" in name:
        return None
    data = re.sub(rb"%([0-9a-f]{2})", lambda m: bytes((int(m[1], 16),)), os.fsencode(name))
    return "" if name == "%" else data.decode("utf-8", "surrogatepass")


def list_files(folder: Path) -> list[Path]:
    """Return the JSONL files in a folder, sorted by name. If the folder doesn't exist, the list is empty."""
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise describe_os_error(folder, "read", problem) from problem


def list_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, sorted by name. If the folder doesn't exist, the list is empty."""
    try:
        with os.scandir(folder) as found:
            return sorted(folder / each.name for each in found if each.is_dir())
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise describe_os_error(folder, "read", problem) from problem


def read_first_line(path: Path) -> bytes:
    """Return the first line of a file, or empty bytes if the file doesn't exist."""
    try:
        with io.BufferedReader(open_private(path, "rb")) as file:
            return file.readline()
    except FileNotFoundError:
        return b""
    except OSError as problem:
        raise describe_os_error(path, "read", problem) from problem


class Log:
    """An append-only file of lines, with its lock file and the interrupted writes that were moved out of it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}{SUFFIX}"
        self._folder = folder
        self._name = name
        self._lock = folder / f"{name}.lock"
        self._held: io.FileIO | None = None
        """The lock file, while this object has it locked."""

    @translates_os_errors("read")
    def exists(self) -> bool:
        """Return whether the file exists. Unlike `Path.exists`, fail if a part of the path is not a folder."""
        try:
            os.stat(self.path)
        except FileNotFoundError:
            return False
        return True

    @translates_os_errors("written")
    def run_locked(self, work: Callable[[], T]) -> T:
        """Call `work` while no other process or thread writes to the file, and return the result of `work`.

        The lock is held inside a `with` on a file object, which C code closes, and never across a `yield`, so that
        Ctrl-C at any point releases the lock before the caller handles the exception. filelock 4.2 doesn't ensure that:
        at 44 of the 387 points in its code where Python may handle a signal, the lock stays taken, for this thread too,
        while the exception is handled. filelock also polls every 50 ms, whereas `flock` wakes the next waiter; it takes
        90 µs instead of 12; and from Python 3.12 on, it hooks every audit event of the process.

        Closing the file releases the lock, since no other process has the file open: a forked one closes its copy.
        """
        while True:
            with self._open_lock() as file:
                _lock_files.add(file)
                lock_file(file.fileno())
                if not self._is_current_lock(file.fileno()):
                    continue
                try:
                    self._held = file
                    return work()
                finally:
                    self._held = None
                    with suppress(OSError):
                        if not self.path.exists():
                            self._lock.unlink()
                            self._folder.rmdir()

    def _open_lock(self) -> io.FileIO:
        while True:
            try:
                return open_or_create_private(self._lock)
            except FileNotFoundError:
                try:
                    make_private_folder(self._folder)
                except FileExistsError:
                    # Another writer may have removed the folder just now, after deleting the last conversation in it.
                    if self._folder.is_symlink():
                        raise

    def _is_current_lock(self, file: int) -> bool:
        """Return whether an open file is still the lock file. The last holder of the lock may have removed it."""
        try:
            return os.path.samestat(os.fstat(file), os.stat(self._lock))
        except FileNotFoundError:
            return False

    def read_note(self) -> Acknowledged | None:
        """Return the note of the last writer, or None if there is none that can be read."""
        try:
            with open_private(self._lock, "rb") as file:
                return _parse_note(file)
        except OSError:
            return None

    def acknowledge(self, file: str, before: Point, after: Point) -> None:
        """Note in the lock file that a write is acknowledged. The caller must have locked the file.

        `file` is the id of the file, which has grown from the point `before` to the point `after`. The note is left as
        it is if it contradicts the file, and if it can't be written: it may be older than the file.
        """
        with suppress(OSError):
            if self._held is None:
                return
            note = _parse_note(self._held)
            if note is not None and note.file == file and note.point not in (before, self._find_point(note.size)):
                return
            data = msgspec.json.encode(Acknowledged(file, after.size, f"{after.crc:08x}"))
            self._held.seek(0)
            _write(self._held, data.ljust(_NOTE_SIZE) + b"\n")

    def _find_point(self, size: int) -> Point:
        """Return the point after the first `size` bytes of the file, or after all of them if it is shorter."""
        with open_private(self.path, "rb") as file:
            return START.advance(file.read(size))

    @translates_os_errors("read")
    def read(self, header: bytes, offset: int) -> tuple[int, bytes] | None:
        """Return `offset` and the file's content from there on, or None if the file doesn't exist.

        If the file is shorter than `offset` or doesn't begin with `header`, it was replaced since the last read; then
        0 and the whole content are returned.
        """
        try:
            with open_private(self.path, "rb") as file:
                if offset and (os.fstat(file.fileno()).st_size < offset or file.read(len(header)) != header):
                    offset = 0
                file.seek(offset)
                return offset, file.read()
        except FileNotFoundError:
            return None

    @translates_os_errors("written")
    def append(self, data: bytes, offset: int, *, fsync: bool) -> None:
        """Append data to the file, whose current size is `offset`. If that fails, truncate the file to this size."""
        with open_private(self.path, "ab") as file:
            try:
                _write(file, data)
                if fsync:
                    os.fsync(file)
            except BaseException:
                with suppress(OSError):
                    file.truncate(offset)
                raise
        if fsync and not offset:
            _fsync_folder(self._folder)

    @translates_os_errors("written")
    def set_aside(self, offset: int) -> InterruptedWrite:
        """Move an interrupted write, the bytes from `offset` on, to a separate file. Return a description of it."""
        moved_to = self._make_side_path("torn")
        with open_private(self.path, "rb+") as file:
            file.seek(offset)
            torn = file.read()
            _create(moved_to, torn)
            with _remove_on_failure(moved_to):
                file.truncate(offset)
        return InterruptedWrite(self.path, moved_to, len(torn), now())

    @translates_os_errors("written")
    def replace(self, data: bytes) -> None:
        """Replace the file's content atomically, and delete the interrupted writes that were moved out of the file."""
        new = self._make_side_path("new")
        _create(new, data)
        with _remove_on_failure(new):
            new.replace(self.path)
        _fsync_folder(self._folder)
        self._remove_side_files()

    @translates_os_errors("deleted")
    def remove(self) -> None:
        """Delete the file, and the interrupted writes that were moved out of it."""
        if self._held is not None:
            # The file is not missed after a crash that leaves the lock file.
            self._held.truncate(0)
        self.path.unlink(missing_ok=True)
        self._remove_side_files()

    def _remove_side_files(self) -> None:
        for name in os.listdir(self._folder):
            if name.startswith((f"{self._name}.torn-", f"{self._name}.new-")):
                (self._folder / name).unlink(missing_ok=True)

    def _make_side_path(self, label: str) -> Path:
        """Return a new path next to the file, such as `talk.torn-1700000000000-0a1b`."""
        return self._folder / f"{self._name}.{label}-{now()}-{new_id()[:4]}"


def _parse_note(file: io.FileIO) -> Acknowledged | None:
    file.seek(0)
    try:
        note = typed_json.decode(file.read(2 * _NOTE_SIZE), Acknowledged)
        return note if note.point.size >= 0 else None
    except ValueError:
        return None


def _create(path: Path, data: bytes) -> None:
    """Create a file with this content. If that fails, no file remains."""
    with open_private(path, "xb") as file, _remove_on_failure(path):
        _write(file, data)
        os.fsync(file)


@contextmanager
def _remove_on_failure(path: Path) -> Iterator[None]:
    """Delete a file if the code in this context fails or is interrupted."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def _write(file: io.FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file.fileno(), rest) :]


def _fsync_folder(folder: Path) -> None:
    """Flush a folder to disk, so that the name of a new file survives a power cut. On Windows this does nothing."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


_lock_files: WeakSet[io.FileIO] = WeakSet()
"""The lock files that this process has open."""


def _close_lock_files() -> None:
    for file in list(_lock_files):
        file.close()


# A forked process has the files of its parent open too, and would keep the locks.
on_fork(_close_lock_files)

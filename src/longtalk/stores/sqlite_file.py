"""A database file: opened once per process, one transaction at a time, its errors in our words.

Stores of one path share a connection, because opening costs more than a turn does; a lock of ours keeps transactions
of several threads apart. Before a fork all connections are closed, since SQLite's locks do not survive one: parent and
child open their own when they need it. A file that somebody else keeps locked is waited for.

The system lets go of a file's locks when the process that has them closes the file anywhere: do not open it by other
means, such as `sqlite3` or `open`, in a process that has a store on it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, cast

import apsw
import msgspec

from longtalk.errors import InputError, LongtalkError, StoreError
from longtalk.stores.sqlite_schema import APPLICATION, MIGRATIONS

MEMORY = ":memory:"
PATIENCE = 300.0
"""Seconds to wait for a file that another process keeps locked."""

BUSY = 10_000
"""Milliseconds that SQLite waits by itself."""

_OWES = "SELECT value FROM settings WHERE name = 'owes'"

Synchronous = Literal["normal", "full"]
T = TypeVar("T")


class Database(Protocol):
    """What we use of a connection. Values have the types that they were stored with."""

    def execute(self, sql: str, values: Any = ..., /) -> Any: ...
    def executemany(self, sql: str, values: Iterable[Any], /) -> Any: ...
    def pragma(self, name: str, value: int = ..., /) -> Any: ...
    def changes(self) -> int: ...
    def last_insert_rowid(self) -> int: ...
    def set_busy_timeout(self, milliseconds: int, /) -> None: ...
    def close(self) -> None: ...
    @property
    def in_transaction(self) -> bool: ...


class Damaged(Exception):
    """What was read can't be what was written."""


class _Job:
    """A write that may be committed together with others."""

    def __init__(self, work: Callable[[Database], Any]) -> None:
        self.work = work
        self.done = False
        self.result: Any = None
        self.problem: Exception | None = None


class File:
    """One database, for all stores of this process that use it."""

    def __init__(self, path: str, synchronous: Synchronous) -> None:
        self.path = path
        self.synchronous = synchronous
        self.users = 0
        self.lock = threading.Lock()
        self.db: Database | None = None
        self._opened: tuple[int, int] | None = None
        self._waiting: deque[_Job] = deque()

    def read(self, work: Callable[[Database], T]) -> T:
        """What the work returns, all of it from one moment."""
        return self._transaction("BEGIN", work)

    def write(self, work: Callable[[Database], T]) -> T:
        """Do the work whole, or not at all if it raises."""
        # Ctrl-C strikes the main thread alone. That one writes for nobody else, and leaves nothing to others.
        alone = self.synchronous != "full" or threading.current_thread() is threading.main_thread()
        change = partial(self._transaction, "BEGIN IMMEDIATE") if alone else self._together
        result, owes = change(lambda db: (work(db), db.execute(_OWES).get))
        if owes:
            self.forget(wait=0)
        return cast("T", result)

    def _together(self, work: Callable[[Database], Any]) -> Any:
        """Write with all who wait at the same time: one commit, which waits once for the disk."""
        job = _Job(work)
        self._waiting.append(job)
        with self.lock:
            if not job.done:
                self._do_waiting(job)
        if job.problem is not None:
            raise job.problem
        return job.result

    def _do_waiting(self, own: _Job) -> None:
        batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            results = self._do("BEGIN IMMEDIATE", lambda db: [job.work(db) for job in batch])
            for job, result in zip(batch, results, strict=True):
                job.result, job.done = result, True
        except Exception as failure:
            # Nothing of it was saved. Each for itself: one that fails does not take the others along.
            if len(batch) == 1:
                own.problem, own.done = failure, True
            for job in [] if own.done else batch:
                try:
                    job.result = self._do("BEGIN IMMEDIATE", job.work)
                except Exception as problem:
                    job.problem = problem
                job.done = True
        finally:
            # Ctrl-C ends who got it, and nobody else.
            self._waiting.extendleft(job for job in reversed(batch) if not job.done and job is not own)

    def _transaction(self, begin: str, work: Callable[[Database], T]) -> T:
        with self.lock:
            return self._do(begin, work)

    def _do(self, begin: str, work: Callable[[Database], T]) -> T:
        try:
            db = self.db or self._open()
            if begin != "BEGIN" and self.path != MEMORY and self._place() != self._opened:
                # What is written to a file without a name is gone when it is closed.
                raise StoreError(f"{self.path} was moved or removed: nothing of this change was saved.")
            return self._patiently(lambda: _whole(db, begin, work))
        except UnicodeEncodeError as problem:
            raise InputError(f"{problem.object[:60]!r} can't be stored: it is not Unicode.") from None
        except (Damaged, msgspec.DecodeError) as problem:
            raise StoreError(f"{self.path} is damaged: restore it from a backup ({problem}).") from None
        except apsw.TooBigError:
            raise InputError(f"{self.path}: this is more than the 1 GB that SQLite takes at once.") from None
        except apsw.Error as problem:
            raise self._error(problem) from problem

    def forget(self, *, wait: int = 1000) -> None:
        """Take what was removed out of the write-ahead log too: if somebody reads from it now, after a later write.

        The file says that this is owed (`owe`), so that whoever writes next does it, in any process.
        """
        with self.lock:
            if self.db is None or self.path == MEMORY:
                return
            try:
                self.db.set_busy_timeout(wait)
                owes = self.db.execute(_OWES).get
                if not self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                    # Unless somebody has removed something since.
                    self.db.execute("DELETE FROM settings WHERE name = 'owes' AND value = ?", (owes,))
            except apsw.BusyError:
                pass
            except apsw.Error as problem:
                raise self._error(problem) from problem
            finally:
                self.db.set_busy_timeout(BUSY)

    def open(self) -> None:
        with self.lock:
            try:
                if self.db is None:
                    self._open()
            except apsw.Error as problem:
                raise self._error(problem) from problem

    def close(self) -> None:
        with self.lock:
            self._close()

    def _close(self) -> None:
        if self.db is not None:
            self.db.close()
            self.db = None

    def _open(self) -> Database:
        db: Database = (connection := apsw.Connection(self.path))
        try:
            db.set_busy_timeout(BUSY)
            # Otherwise a query on a table with a partial index is planned anew for each value that it is given.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            # Somebody else's database must not be changed, not even its journal.
            version = self._patiently(lambda: _whole(db, "BEGIN", self._version))
            # While others do the same, this is refused at once, without the timeout.
            self._patiently(lambda: db.execute("PRAGMA journal_mode = WAL").fetchall())
            db.execute(f"PRAGMA synchronous = {self.synchronous}")
            db.execute("PRAGMA secure_delete = ON")
            db.execute("PRAGMA journal_size_limit = 16777216")
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute("PRAGMA temp_store = MEMORY")
            if version < len(MIGRATIONS):
                self._patiently(lambda: _whole(db, "BEGIN IMMEDIATE", self._migrate))
        except BaseException:
            db.close()
            raise
        self.db = db
        self._opened = self._place()
        return db

    def _place(self) -> tuple[int, int] | None:
        """Which file has the name now."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _version(self, db: Database) -> int:
        """How many migrations the file has seen."""
        version: int = db.pragma("user_version")
        if version > len(MIGRATIONS):
            raise InputError(
                f"{self.path} was written by a newer Longtalk: its layout is {version}, "
                f"and this one reads up to {len(MIGRATIONS)}. Upgrade Longtalk to open it."
            )
        if db.pragma("application_id") != APPLICATION and db.execute("SELECT 1 FROM sqlite_schema").get is not None:
            raise InputError(f"{self.path} is a database of something else: name another path for the conversations.")
        return version

    def _migrate(self, db: Database) -> None:
        for number in range(self._version(db), len(MIGRATIONS)):
            db.execute(MIGRATIONS[number])
        db.pragma("application_id", APPLICATION)
        db.pragma("user_version", len(MIGRATIONS))

    def _patiently(self, work: Callable[[], T]) -> T:
        """Wait while another process has the file locked."""
        try:
            return work()
        except (apsw.BusyError, apsw.LockedError):
            pass
        start = time.monotonic()
        while True:
            time.sleep(0.005)
            try:
                return work()
            except (apsw.BusyError, apsw.LockedError):
                if time.monotonic() > start + PATIENCE:
                    raise

    def _error(self, problem: apsw.Error) -> LongtalkError:
        path = self.path
        if isinstance(problem, apsw.NotADBError):
            return InputError(f"{path} is not a database: name another path for the conversations.")
        if isinstance(problem, apsw.CantOpenError):
            return InputError(f"{path} can't be opened: its folder must be there, and writable ({problem}).")
        if isinstance(problem, (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError)):
            return InputError(f"{path} can't be written: make the file and its folder writable ({problem}).")
        if isinstance(problem, apsw.CorruptError):
            return StoreError(f"{path} is damaged: restore it from a backup ({problem}).")
        if isinstance(problem, apsw.FullError):
            return StoreError(f"{path} can't grow: the disk is full. Nothing of this change was saved.")
        if isinstance(problem, (apsw.BusyError, apsw.LockedError)):
            return StoreError(f"{path} is kept locked by another process: nothing of this change was saved.")
        return StoreError(f"{path}: {problem}.")


def owe(db: Database) -> None:
    """Note that what was removed is still in the write-ahead log."""
    db.execute("INSERT INTO settings VALUES ('owes', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1")


def _whole(db: Database, begin: str, work: Callable[[Database], T]) -> T:
    try:
        # In here: Ctrl-C may come right behind it.
        db.execute(begin)
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        # After some errors SQLite has done so itself.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


_files: dict[tuple[str, str], File] = {}
_private: list[File] = []
_guard = threading.Lock()


def take(path: str, synchronous: Synchronous) -> File:
    """The file of this path, open. Whoever takes it gives it back."""
    if path == MEMORY:
        file = File(path, synchronous)
        file.users = 1
        with _guard:
            _private.append(file)
        file.open()
        return file
    if "\0" in path:
        raise InputError(f"{path!r} is not a path.")
    path = os.path.realpath(path)
    with _guard:
        file = _files.setdefault((path, synchronous), File(path, synchronous))
        file.users += 1
    try:
        file.open()
    except BaseException:
        give(file)
        raise
    return file


def give(file: File) -> None:
    with _guard:
        file.users -= 1
        if file.users:
            return
        if file in _private:
            _private.remove(file)
        else:
            _files.pop((file.path, file.synchronous), None)
    file.close()


def _before_fork() -> None:
    _guard.acquire()
    for file in (*_files.values(), *_private):
        file.lock.acquire()
        if file.path != MEMORY:
            file._close()


def _after_fork() -> None:
    for file in (*_files.values(), *_private):
        file.lock.release()
    _guard.release()


def _after_fork_in_child() -> None:
    for file in (*_files.values(), *_private):
        # Who waits there does so in the other process.
        file._waiting.clear()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)

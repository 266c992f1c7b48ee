"""SQLite files: one connection per process, one transaction at a time, and errors in Longtalk's terms.

Stores with the same path and the same `synchronous` setting share a connection, because opening one costs more than a
turn: see `sharing.py`. A lock keeps the transactions of threads apart. A transaction waits while another process has
the file locked.

The operating system releases a process's locks on a file when the process closes any handle to it. Don't open the file
by other means, such as `sqlite3` or `open`, in a process that has a store on it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol, TypeVar

import apsw
import msgspec

from longtalk._util.private_files import create_private
from longtalk.errors import CorruptStore, InputError, LongtalkError, StoreError
from longtalk.stores.sqlite.schema import APPLICATION, MIGRATIONS

MEMORY = ":memory:"
PATIENCE = 300.0
"""Seconds to keep trying while another process has the file locked."""

BUSY_TIMEOUT = 10_000
"""Milliseconds for which SQLite itself waits for a lock before it raises an error."""

PENDING_PURGE = "SELECT value FROM settings WHERE name = 'owes'"
"""The query for the note that `note_pending_purge` left in the file."""

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""The exceptions that decoding damaged data may raise."""

Synchronous = Literal["normal", "full"]
T = TypeVar("T")


class Database(Protocol):
    """The part of an APSW connection that the store uses. Values are returned with the type they were stored with."""

    def execute(self, sql: str, values: Any = ..., /) -> Any: ...
    def executemany(self, sql: str, values: Iterable[Any], /) -> Any: ...
    def pragma(self, name: str, value: int = ..., /) -> Any: ...
    def data_version(self) -> int: ...
    def changes(self) -> int: ...
    def last_insert_rowid(self) -> int: ...
    def set_busy_timeout(self, milliseconds: int, /) -> None: ...
    def close(self) -> None: ...
    @property
    def in_transaction(self) -> bool: ...


class DamagedData(Exception):
    """Raised if stored data differs from what was written. The message says which data."""


class _QueuedWrite:
    """A write that may share a transaction with the writes of other threads."""

    def __init__(self, work: Callable[[Database], Any]) -> None:
        self.work = work
        self.done = False
        self.result: Any = None
        self.problem: Exception | None = None


class File:
    """A database file and its connection, shared by all stores in this process that use the file."""

    def __init__(self, path: str, synchronous: Synchronous) -> None:
        self.path = path
        self.synchronous = synchronous
        self.users = 0
        """The number of stores that use the file."""
        self.lock = threading.Lock()
        self.db: Database | None = None
        self._opened_identity: tuple[int, int] | None = None
        self._queue: deque[_QueuedWrite] = deque()
        self._seen = -1
        """A number that SQLite changes when another connection changes the file; -1 before the first write."""

    def read(self, work: Callable[[Database], T]) -> T:
        """Run `work` in a read transaction and return its result. All queries of `work` see the same state."""
        return self._run_alone("BEGIN", work)

    def write(self, work: Callable[[Database], T]) -> T:
        """Run `work` in a write transaction and return its result. If `work` raises an exception, write nothing."""
        return self.write_and_purge(lambda db: (work(db), db.execute(PENDING_PURGE).get))

    def write_and_purge(self, work: Callable[[Database], tuple[T, int | None]]) -> T:
        """Do the same as `write`, for work that returns its result and the value of `PENDING_PURGE`."""
        # Ctrl-C interrupts only the main thread, so the main thread doesn't share transactions with other threads.
        result: T
        if self.synchronous != "full" or threading.current_thread() is threading.main_thread():
            with self.lock:
                result, pending = self._run("BEGIN IMMEDIATE", work)
        else:
            result, pending = self._write_together(work)
        if pending:
            self.purge_log(wait=0)
        return result

    def _write_together(self, work: Callable[[Database], Any]) -> Any:
        """Run `work` in one transaction with the pending writes of other threads, to wait for the disk only once."""
        job = _QueuedWrite(work)
        self._queue.append(job)
        with self.lock:
            if not job.done:
                self._run_queued(job)
        if job.problem is not None:
            raise job.problem
        return job.result

    def _run_queued(self, own: _QueuedWrite) -> None:
        """Run all queued writes in one transaction, or each in its own if that fails. `own` is this thread's write."""
        batch = [self._queue.popleft() for _ in range(len(self._queue))]
        try:
            results = self._run("BEGIN IMMEDIATE", lambda db: [job.work(db) for job in batch])
            for job, result in zip(batch, results, strict=True):
                job.result, job.done = result, True
        except Exception as failure:
            # Nothing was saved. Run each write in its own transaction, so that only those that fail are lost.
            if len(batch) == 1:
                own.problem, own.done = failure, True
            for job in [] if own.done else batch:
                try:
                    job.result = self._run("BEGIN IMMEDIATE", job.work)
                except Exception as problem:
                    job.problem = problem
                job.done = True
        finally:
            # After Ctrl-C, only the interrupted thread's write is dropped. The rest of the batch goes back to the
            # queue.
            self._queue.extendleft(job for job in reversed(batch) if not job.done and job is not own)

    def _run_alone(self, begin: str, work: Callable[[Database], T]) -> T:
        with self.lock:
            return self._run(begin, work)

    def _run(self, begin: str, work: Callable[[Database], T]) -> T:
        try:
            db = self.db or self._open()
            if begin != "BEGIN" and self.path != MEMORY and self._identity() != self._opened_identity:
                # Data written to a deleted file is lost when the file is closed.
                raise StoreError(
                    f"{self.path} was moved or deleted while the store was open. This change was not saved; "
                    "put the file back, or open the store again."
                )

            def check_and_work(db: Database) -> T:
                if begin != "BEGIN":
                    self._check_version(db)
                return work(db)

            try:
                result = _run_transaction(db, begin, check_and_work)
            except (apsw.BusyError, apsw.LockedError):
                result = self._retry_while_locked(lambda: _run_transaction(db, begin, check_and_work))
            if begin != "BEGIN":
                self._seen = db.data_version()
            return result
        except UnicodeEncodeError as problem:
            raise InputError(
                f"{problem.object[:60]!r} can't be stored: it has unpaired surrogates, which are not valid Unicode. "
                "Remove them."
            ) from None
        except (DamagedData, msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise CorruptStore(f"{self.path} is damaged ({problem}). Restore it from a backup.") from None
        except UNREADABLE as problem:
            # A write raises ValueError for a commit that is invalid.
            if begin != "BEGIN" and isinstance(problem, ValueError):
                raise
            raise CorruptStore(f"{self.path} is damaged ({problem!r}). Restore it from a backup.") from problem
        except apsw.TooBigError:
            raise InputError(
                f"Can't store a value of more than 1 GB, SQLite's limit, in {self.path}. Use a smaller value."
            ) from None
        except apsw.Error as problem:
            raise self._translate_error(problem) from problem

    def purge_log(self, *, wait: int = 1000) -> None:
        """Remove deleted data from the write-ahead log too, unless another connection is reading from the log.

        `wait` is how many milliseconds to wait for other connections. If the removal fails, the note that
        `note_pending_purge` left in the file stays there, and the next write by any process tries again.
        """
        with self.lock:
            if self.db is None or self.path == MEMORY:
                return
            try:
                self.db.set_busy_timeout(wait)
                pending = self.db.execute(PENDING_PURGE).get
                if not self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                    # Keep the note if more data was removed in the meantime.
                    self.db.execute("DELETE FROM settings WHERE name = 'owes' AND value = ?", (pending,))
            except apsw.BusyError:
                pass
            except apsw.Error as problem:
                raise self._translate_error(problem) from problem
            finally:
                self.db.set_busy_timeout(BUSY_TIMEOUT)

    def open(self) -> None:
        """Open the connection if it isn't open yet."""
        with self.lock:
            try:
                if self.db is None:
                    self._open()
            except apsw.Error as problem:
                raise self._translate_error(problem) from problem

    def close(self) -> None:
        """Close the connection. The next transaction opens it again."""
        with self.lock:
            self._close()

    def begin_fork(self) -> None:
        """Close the connection, and hold the lock until `end_fork`."""
        self.lock.acquire()
        if self.path != MEMORY:
            self._close()

    def end_fork(self, *, in_child: bool) -> None:
        """Let the transactions of this process go on after a fork."""
        if in_child:
            # The threads that wait for these writes exist only in the parent process.
            self._queue.clear()
        self.lock.release()

    def _close(self) -> None:
        if self.db is not None:
            self.db.close()
            self.db = None

    def _open(self) -> Database:
        if self.path != MEMORY:
            # SQLite gives the files that it creates beside a database, such as its log, the same permissions.
            create_private(self.path)
        db: Database = (connection := apsw.Connection(self.path))
        try:
            db.set_busy_timeout(BUSY_TIMEOUT)
            # Without this, SQLite plans a query on a table with a partial index again for each bound value.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            # Check this first: the database of another application must not be changed, not even its journal mode.
            version = self._retry_while_locked(lambda: _run_transaction(db, "BEGIN", self._version))
            # While another process does the same, SQLite refuses this at once and ignores the busy timeout.
            self._retry_while_locked(lambda: db.execute("PRAGMA journal_mode = WAL").fetchall())
            db.execute(f"PRAGMA synchronous = {self.synchronous}")
            db.execute("PRAGMA secure_delete = ON")
            db.execute("PRAGMA journal_size_limit = 16777216")
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute("PRAGMA temp_store = MEMORY")
            if version < len(MIGRATIONS):
                self._retry_while_locked(lambda: _run_transaction(db, "BEGIN IMMEDIATE", self._migrate))
        except BaseException:
            db.close()
            raise
        self.db = db
        self._opened_identity = self._identity()
        return db

    def _identity(self) -> tuple[int, int] | None:
        """Return the device and inode of the file that is at the path now, or None if there is no file."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _version(self, db: Database) -> int:
        """Return the number of migrations that were applied to the file.

        Raises `InputError` if the file was written by a newer version of Longtalk or by another application.
        """
        version: int = db.pragma("user_version")
        if version > len(MIGRATIONS):
            raise InputError(
                f"{self.path} was written by a newer version of Longtalk: its schema version is {version}, but this "
                f"version supports at most {len(MIGRATIONS)}. Upgrade Longtalk to open it."
            )
        if db.pragma("application_id") != APPLICATION and db.execute("SELECT 1 FROM sqlite_schema").get is not None:
            raise InputError(f"{self.path} belongs to another application. Choose another path for the store.")
        return version

    def _check_version(self, db: Database) -> None:
        """Raise `StoreError` if a newer version of Longtalk has migrated the file since it was opened.

        Rows of this version would lack what the newer one needs, such as checksums, and would look damaged to it. Only
        a file that another connection has changed since the last write is looked at.
        """
        if db.data_version() != self._seen and db.pragma("user_version") > len(MIGRATIONS):
            raise StoreError(
                f"A newer version of Longtalk has migrated {self.path}. Nothing was written; restart this process with "
                "that version."
            )

    def _migrate(self, db: Database) -> None:
        for number in range(self._version(db), len(MIGRATIONS)):
            db.execute(MIGRATIONS[number])
        db.pragma("application_id", APPLICATION)
        db.pragma("user_version", len(MIGRATIONS))

    def _retry_while_locked(self, work: Callable[[], T]) -> T:
        """Return the result of `work`. If another process has the file locked, retry for up to `PATIENCE` seconds."""
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

    def _translate_error(self, problem: apsw.Error) -> LongtalkError:
        path = self.path
        if os.path.exists(path) and not os.path.isfile(path):
            return InputError(f"{path} is not a regular file. Choose another path for the store.")
        if isinstance(problem, apsw.NotADBError):
            return InputError(f"{path} is not a SQLite database. Choose another path for the store.")
        if isinstance(problem, apsw.CantOpenError):
            return InputError(
                f"{path} can't be opened ({problem}). Its folder must exist, and this user needs access to both."
            )
        if isinstance(problem, (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError)):
            return InputError(f"{path} can't be written ({problem}). Make the file and its folder writable.")
        # The statements are right, so if SQLite refuses one, a value or the schema is damaged.
        if isinstance(problem, (apsw.CorruptError, apsw.SQLError)):
            return CorruptStore(f"{path} is damaged ({problem}). Restore it from a backup.")
        # Without room for the index of its log, SQLite can't even read.
        is_full = getattr(problem, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
        if isinstance(problem, apsw.FullError) or is_full:
            return StoreError(
                f"{path} can't grow: the disk is full. This change was not saved; free space and try again."
            )
        if isinstance(problem, (apsw.BusyError, apsw.LockedError)):
            return StoreError(f"{path} is still locked by another process. Nothing was saved; try again later.")
        return StoreError(f"SQLite failed on {path}: {problem}. Check the file and its disk.")


def note_pending_purge(db: Database) -> None:
    """Note in the file that the write-ahead log still contains deleted data, which later writes try to purge."""
    db.execute("INSERT INTO settings VALUES ('owes', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1")


def _run_transaction(db: Database, begin: str, work: Callable[[Database], T]) -> T:
    """Run `work` in a transaction and return its result. Roll back if `work` raises an exception."""
    try:
        # Inside the `try`, because Ctrl-C may arrive right after the transaction begins.
        db.execute(begin)
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        # After some errors SQLite has already rolled back.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result

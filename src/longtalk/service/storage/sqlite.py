"""The storage of a service whose conversations are in SQLite or JSONL files, for the processes of one machine.

Its tables are in the file of the conversations' store, in the folder of a JSONL store in the file `service.db`. They
are created when a service first opens the file, and have a schema version of their own. Connection, locks and
transactions are those of the store (`stores/sqlite/database.py`).

The version of a document is the number of its row, which `AUTOINCREMENT` never uses twice. The events of one append are
one row. `poll_changes` asks every 25 milliseconds for rows above the last one it saw. `PRAGMA data_version` would not
do: it ignores what other storages in this process write, because they share the connection.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial

from longtalk.errors import InputError
from longtalk.service.storage._logs import (
    Batch,
    append_events,
    decode_name,
    encode_name,
    list_bounds,
    make_page,
    pack_events,
)
from longtalk.service.storage._polling import PollingStorage
from longtalk.service.storage.protocol import Append, Document, LogPage
from longtalk.stores.sqlite.database import MEMORY, Database, File, Synchronous, note_pending_purge
from longtalk.stores.sqlite.sharing import acquire_file, release_file
from longtalk.transcript.transcript import now

POLL_SECONDS = 0.025
"""Seconds between two looks at what other processes have appended."""

_FIRST = """
CREATE TABLE service_documents (
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    kind BLOB NOT NULL,       -- names are blobs: SQLite's texts can't have unpaired surrogates, and end at a NUL
    key BLOB NOT NULL,
    expires INTEGER,
    value BLOB NOT NULL,
    UNIQUE (kind, key)
);
CREATE INDEX service_documents_expires ON service_documents (expires) WHERE expires IS NOT NULL;

CREATE TABLE service_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run BLOB NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    at INTEGER NOT NULL,
    data BLOB NOT NULL        -- the events of one append, as a MessagePack array
);
CREATE INDEX service_events_run ON service_events (run, first);
"""

MIGRATIONS = (_FIRST,)
"""The SQL that upgrades the service's tables to each version. Existing migrations must keep their effect.

The version is in the table `settings` of the store, under the name `service`.
"""

_VERSION = "SELECT value FROM settings WHERE name = 'service'"
_LIVE = "(expires IS NULL OR expires > ?)"
_DELETE = f"DELETE FROM service_documents WHERE kind = ? AND key = ? AND version = coalesce(?, version) AND {_LIVE}"  # noqa: S608
_APPEND = "INSERT INTO service_events (run, first, count, ended, at, data) VALUES (?, ?, ?, ?, ?, ?)"
_DELETE_LOG = "DELETE FROM service_events WHERE run = ?"
_END = "SELECT first + count, ended, at FROM service_events WHERE run = ? ORDER BY first DESC, id DESC LIMIT 1"
_BATCHES = """
SELECT first, data FROM service_events WHERE run = ?1 AND first <= ?3 AND first >= coalesce(
    (SELECT max(first) FROM service_events WHERE run = ?1 AND first <= ?2 + 1), 0)
ORDER BY first, id
"""
# Rows are in the order of time, so the first row that is recent ends the search.
_OLD_RUNS = """
SELECT DISTINCT run FROM service_events WHERE id <
    coalesce((SELECT id FROM service_events WHERE at >= ? ORDER BY id LIMIT 1), 9223372036854775807)
"""


class SQLiteStorage(PollingStorage):
    """Documents and event logs in the SQLite file `path`, for all processes that open it."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "normal",
        clock: Callable[[], int] = now,
    ) -> None:
        if os.fspath(path) == MEMORY:
            raise InputError(
                "A SQLite storage needs a file, not ':memory:'. To keep data in memory, use InMemoryStorage."
            )
        self._clock = clock
        self._seen: int | None = None
        """The last row of `service_events` that `poll_changes` has seen, or None before its first call."""
        self._file = acquire_file(os.fspath(path), synchronous)
        try:
            _migrate(self._file)
        except BaseException:
            release_file(self._file)
            raise
        super().__init__()

    # Documents

    def get(self, kind: str, key: str) -> Document | None:
        names = encode_name(kind), encode_name(key)
        found = self._file.read(lambda db: _get(db, *names, self._clock()))
        return Document(key, *found) if found else None

    def put(
        self, kind: str, key: str, value: bytes, *, expect: int | None = None, expires: int | None = None
    ) -> Document | None:
        names, stored = (encode_name(kind), encode_name(key)), bytes(value)

        def work(db: Database) -> int | None:
            if expect is not None:
                found = _get(db, *names, self._clock())
                if expect != (found[1] if found else 0):
                    return None
            db.execute(
                "INSERT OR REPLACE INTO service_documents (kind, key, expires, value) VALUES (?, ?, ?, ?)",
                (*names, expires, stored),
            )
            return db.last_insert_rowid()

        version = self._file.write(work)
        return Document(key, stored, version) if version is not None else None

    def delete(self, kind: str, key: str, *, expect: int | None = None) -> bool:
        values = encode_name(kind), encode_name(key), expect, self._clock()

        def work(db: Database) -> bool:
            db.execute(_DELETE, values)
            return db.changes() > 0

        return self._file.write(work)

    def list_documents(
        self, kind: str, *, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> list[Document]:
        bounds = list_bounds(kind, prefix, after)
        conditions = " AND ".join(f"{condition} ?" for condition, _ in bounds)
        statement = (
            f"SELECT key, value, version FROM service_documents WHERE {conditions} AND {_LIVE} ORDER BY key LIMIT ?"  # noqa: S608
        )
        values = (*(value for _, value in bounds), self._clock(), max(limit, 0))
        rows = self._file.read(lambda db: db.execute(statement, values).fetchall())
        return [Document(decode_name(key), value, version) for key, value, version in rows]

    # Event logs

    def append_all(self, appends: Sequence[Append], *, delete: Sequence[tuple[str, str]] = ()) -> frozenset[str]:
        at = self._clock()
        documents = [(encode_name(kind), encode_name(key), None, at) for kind, key in delete]

        def work(db: Database) -> frozenset[str]:
            conflicts = append_events(appends, partial(_extend, db, at), partial(_read_page, db))
            for values in documents:
                db.execute(_DELETE, values)
            return conflicts

        return self._file.write(work)

    def read(self, run: str, after: int = -1, limit: int = 1000) -> LogPage | None:
        return self._file.read(lambda db: _read_page(db, run, after, limit))

    def _wait_for_changes(self, until: float) -> frozenset[str] | None:
        if self._seen is None:
            self._seen = self._file.read(lambda db: db.execute("SELECT max(id) FROM service_events").get) or 0
            return None
        while True:
            changed = self._read_changes(self._seen)
            left = until - time.monotonic()
            if changed or self._closed or left <= 0:
                return changed
            self._waker.wait(min(left, POLL_SECONDS))

    def _read_changes(self, seen: int) -> frozenset[str]:
        """Return the runs with rows after the row `seen`."""
        rows = self._file.read(
            lambda db: db.execute("SELECT id, run FROM service_events WHERE id > ? ORDER BY id", (seen,)).fetchall()
        )
        if rows:
            self._seen = rows[-1][0]
        return frozenset(decode_name(run) for _, run in rows)

    # Upkeep

    def delete_log(self, run: str) -> bool:
        def work(db: Database) -> bool:
            db.execute(_DELETE_LOG, (encode_name(run),))
            if is_deleted := db.changes() > 0:
                note_pending_purge(db)
            return is_deleted

        return self._file.write(work)

    def purge(self, now: int, *, logs_before: int) -> int:
        def work(db: Database) -> int:
            db.execute("DELETE FROM service_documents WHERE expires < ?", (now,))
            count = db.changes()
            for (run,) in db.execute(_OLD_RUNS, (logs_before,)).fetchall():
                if db.execute(_END, (run,)).fetchone()[2] < logs_before:
                    db.execute(_DELETE_LOG, (run,))
                    count += 1
            if count:
                note_pending_purge(db)
            return count

        return self._file.write(work)

    def _release(self) -> None:
        release_file(self._file)

    def _forget_connections(self) -> None:
        pass


def _get(db: Database, kind: bytes, key: bytes, time: int) -> tuple[bytes, int] | None:
    """Return the value and version of a document that has not expired."""
    found: tuple[bytes, int] | None = db.execute(
        f"SELECT value, version FROM service_documents WHERE kind = ? AND key = ? AND {_LIVE}",  # noqa: S608
        (kind, key, time),
    ).fetchone()
    return found


def _extend(db: Database, at: int, appends: Sequence[Append]) -> list[bool]:
    """Make the appends that continue their logs as these are now, and return which were made."""
    made = []
    for append in appends:
        name, events = encode_name(append.run), append.events
        end = db.execute(_END, (name,)).fetchone()
        continues = append.first == 0 if end is None else end[:2] == (append.first, 0)
        if continues and (events or append.ended or end is None):
            db.execute(_APPEND, (name, append.first, len(events), append.ended, at, pack_events(events)))
        made.append(continues)
    return made


def _read_page(db: Database, run: str, after: int, limit: int) -> LogPage | None:
    name, after = encode_name(run), max(after, -1)
    end = db.execute(_END, (name,)).fetchone()
    if end is None:
        return None
    rows = db.execute(_BATCHES, (name, after, after + max(limit, 0))).fetchall() if after + 1 < end[0] else ()
    return make_page([Batch(*row) for row in rows], after, limit, end[0], ended=bool(end[1]))


def _migrate(file: File) -> None:
    """Create or upgrade the service's tables. Raise `InputError` if a newer version of Longtalk has written them."""

    def read_version(db: Database) -> int:
        version: int = db.execute(_VERSION).get or 0
        if version > len(MIGRATIONS):
            raise InputError(
                f"{file.path} was written by a newer version of Longtalk's service: its schema version is {version}, "
                f"but this version supports at most {len(MIGRATIONS)}. Upgrade Longtalk to open it."
            )
        return version

    def migrate(db: Database) -> None:
        for number in range(read_version(db), len(MIGRATIONS)):
            db.execute(MIGRATIONS[number])
        db.execute("INSERT OR REPLACE INTO settings VALUES ('service', ?)", (len(MIGRATIONS),))

    if file.read(read_version) < len(MIGRATIONS):
        file.write(migrate)

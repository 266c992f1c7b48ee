"""The storage of a service whose conversations are in PostgreSQL, for processes on many machines.

Its tables and functions (`sql/`) are in the schema of the conversations' store. They are created when a service first
opens the schema, and have numbered migrations of their own. Each method calls one function, in one round trip, on a
connection of the store's pool. The pool repeats a call if the connection is lost: a put has a random stamp by which the
server recognizes it, and an append recognizes the events that the log has.

An append notifies all processes with `NOTIFY`, in its transaction. `poll_changes` has a connection of its own that
listens; while it is lost, each answer is None. A pooler may send each transaction through another connection, on which
nothing is heard, so behind one `poll_changes` can't tell what has changed and returns None every 100 milliseconds.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

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
from longtalk.stores.postgres.pool import ConnectionLost
from longtalk.transcript.transcript import now

if TYPE_CHECKING:
    from longtalk.stores.postgres.pool import Connection, Pool

VERSION = 2
"""The number of the newest migration of the service's tables."""
POLL_SECONDS = 0.1
"""Seconds between two answers of `poll_changes` behind a pooler, or while the server can't be reached."""
CHECK_SECONDS = 10.0
"""Seconds of silence after which the connection that listens is checked."""

_MAX_NUMBER = 2**62
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('longtalk service ' || %s, 0))"


class PostgresStorage(PollingStorage):
    """Documents and event logs in a schema of a store, through the store's pool. `schema` is quoted for SQL."""

    def __init__(self, pool: Pool, schema: str, *, clock: Callable[[], int] = now) -> None:
        self._pool = pool
        self.parallel = pool.most
        self._schema = schema
        self._clock = clock
        self._channel = f"longtalk_{hashlib.blake2b(schema.encode(), digest_size=16).hexdigest()}"
        self._listening: Connection | None = None
        self._heard = 0.0
        """When the connection that listens was last known to work."""
        _prepare_tables(pool, schema)
        super().__init__()

    # Documents

    def get(self, kind: str, key: str) -> Document | None:
        found = self._query(
            f"SELECT value, version FROM {self._schema}.service_documents"  # noqa: S608
            " WHERE kind = %s AND key = %s AND (expires IS NULL OR expires > %s)",
            encode_name(kind),
            encode_name(key),
            self._clock(),
        )
        return Document(key, *found[0]) if found else None

    def put(
        self, kind: str, key: str, value: bytes, *, expect: int | None = None, expires: int | None = None
    ) -> Document | None:
        stored, stamp = bytes(value), random.getrandbits(62)
        version = self._call("put", encode_name(kind), encode_name(key), stored, expect, expires, self._clock(), stamp)
        return Document(key, stored, version) if version is not None else None

    def delete(self, kind: str, key: str, *, expect: int | None = None) -> bool:
        return bool(self._call("delete", encode_name(kind), encode_name(key), expect, self._clock()))

    def list_documents(
        self, kind: str, *, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> list[Document]:
        bounds = list_bounds(kind, prefix, after)
        rows = self._query(
            f"SELECT key, value, version FROM {self._schema}.service_documents"  # noqa: S608
            f" WHERE {' AND '.join(f'{condition} %s' for condition, _ in bounds)} AND (expires IS NULL OR expires > %s)"
            " ORDER BY key LIMIT %s",
            *(value for _, value in bounds),
            self._clock(),
            max(limit, 0),
        )
        return [Document(decode_name(key), value, version) for key, value, version in rows]

    # Event logs

    def append_all(self, appends: Sequence[Append], *, delete: Sequence[tuple[str, str]] = ()) -> frozenset[str]:
        at = self._clock()

        def extend(some: Sequence[Append]) -> list[bool]:
            made: list[bool] = self._call(
                "append_all",
                [encode_name(each.run) for each in some],
                [each.first for each in some],
                [len(each.events) for each in some],
                [pack_events(each.events) for each in some],
                [each.ended for each in some],
                at,
                self._channel,
                [encode_name(kind) for kind, _ in delete],
                [encode_name(key) for _, key in delete],
            )
            return made

        return append_events(appends, extend, self.read)

    def read(self, run: str, after: int = -1, limit: int = 1000) -> LogPage | None:
        after, limit = max(after, -1), max(limit, 0)
        rows = self._query(
            f"SELECT * FROM {self._schema}.service_read(%s, %s, %s)",  # noqa: S608
            encode_name(run),
            min(after, _MAX_NUMBER),
            min(limit, _MAX_NUMBER),
        )
        if not rows:
            return None
        batches = [Batch(first, data) for _, _, first, data in rows if first is not None]
        return make_page(batches, after, limit, rows[0][0], ended=rows[0][1])

    def _wait_for_changes(self, until: float) -> frozenset[str] | None:
        if not self._pool.is_pooled:
            try:
                return self._listen(until)
            except (ConnectionLost, self._pool.errors):
                self._stop_listening()
        self._waker.wait(min(until - time.monotonic(), POLL_SECONDS))
        return None

    def _listen(self, until: float) -> frozenset[str] | None:
        """Return the runs that were announced until a time, or None if this call has begun to listen."""
        if self._listening is None or self._listening.closed:
            self._listening = self._pool.connect()
            self._listening.execute(f"LISTEN {self._channel}")
            self._heard = time.monotonic()
            return None
        runs: set[str] = set()
        connection = self._listening
        while True:
            for notice in connection.notifies(timeout=0):
                if not notice.payload:
                    return None
                runs.add(decode_name(bytes.fromhex(notice.payload[1:])))
                self._heard = time.monotonic()
            if runs or self._closed or (left := until - time.monotonic()) <= 0:
                return frozenset(runs)
            silent = time.monotonic() - self._heard
            if silent >= CHECK_SECONDS:
                # A server that vanished without a word is noticed only when something is sent to it. What is announced
                # meanwhile may be missed.
                connection.execute("SELECT 1")
                self._heard = time.monotonic()
                return None
            self._waker.wait(min(left, CHECK_SECONDS - silent), [connection.fileno()])

    # Upkeep

    def delete_log(self, run: str) -> bool:
        statement = f"DELETE FROM {self._schema}.service_events WHERE run = %s RETURNING id"  # noqa: S608
        return bool(self._query(statement, encode_name(run)))

    def purge(self, now: int, *, logs_before: int) -> int:
        return int(self._call("purge", now, logs_before))

    def _release(self) -> None:
        self._stop_listening()

    # Calling the server

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._pool.disconnect(self._listening)
            self._listening = None

    def _forget_connections(self) -> None:
        # The pool has left the parent's connections to the parent.
        self._listening = None

    def _call(self, function: str, *values: Any) -> Any:
        """Call a function of the schema and return its result."""
        places = ", ".join(["%s"] * len(values))
        return self._query(f"SELECT {self._schema}.service_{function}({places})", *values)[0][0]

    def _query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._pool.run(lambda connection: connection.execute(statement, values, binary=True).fetchall())


def _prepare_tables(pool: Pool, schema: str) -> None:
    """Create or migrate the service's tables, while no other process does it.

    Raises `InputError` if a newer version of Longtalk has migrated them.
    """

    def read_version(connection: Connection) -> int:
        (known,) = connection.execute("SELECT to_regclass(%s)", (f"{schema}.service_migrations",)).fetchone() or (None,)
        if known is None:
            return 0
        (applied,) = connection.execute(
            f"SELECT coalesce(max(version), 0) FROM {schema}.service_migrations"  # noqa: S608
        ).fetchone() or (0,)
        if applied > VERSION:
            raise InputError(
                f"The service's tables in schema {schema} were written by a newer version of Longtalk: their version "
                f"is {applied}, but this version supports at most {VERSION}. Upgrade Longtalk to open them."
            )
        return int(applied)

    def migrate(connection: Connection) -> None:
        with connection.transaction():
            connection.execute(_LOCK, (schema,))
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {schema}.service_migrations"
                " (version int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())"
            )
            for number in range(read_version(connection) + 1, VERSION + 1):
                connection.execute(_read_migration(number, schema).encode())
                connection.execute(f"INSERT INTO {schema}.service_migrations (version) VALUES (%s)", (number,))  # noqa: S608

    if pool.run(read_version) < VERSION:
        pool.run(migrate)


def _read_migration(number: int, schema: str) -> str:
    """Return the SQL statements of a migration."""
    folder = files("longtalk.service.storage").joinpath("sql")
    names = sorted(file.name for file in folder.iterdir() if file.name.startswith(f"{number}-"))
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names).replace("{s}", schema)

"""A pool of connections to a PostgreSQL server, shared by all threads, that survives a restart of the server.

A call takes a connection for its exclusive use and returns it afterwards. If the connection breaks, the call is retried
on another one until it succeeds or the deadline passes. That is safe because running a call twice has the same effect
as running it once: a read changes nothing, a commit has a stamp by which the server recognizes it (in the SQL function
`write`), and describing, redacting, renewing and removing are idempotent.

After a fork, the child leaves the connections to its parent and opens its own.

psycopg_pool 3.3 can't replace this pool. Ctrl-C in a thread that waits for a connection loses a connection for good:
the next connection that is returned goes to the waiter that no longer exists, and a pool of one connection stays empty.
Its four threads don't exist in a forked child, which uses its parent's connections and gets no new ones. An unreachable
server is reported as a timeout after the whole wait, without the reason.
"""

from __future__ import annotations

import os
import queue
import re
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from longtalk._util.processes import on_fork
from longtalk.errors import InputError, LongtalkError, MissingExtra, StoreError

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

PATIENCE = 30.0
"""Seconds to keep trying while the server is unavailable."""
RETRY_WAITS = 0.02, 0.5
"""Seconds between retries: the first wait, which doubles with each retry, and the longest wait."""
_POLL = 0.05
"""Seconds after which a waiting thread checks for a free connection, even if it wasn't notified."""
IDLE_SECONDS = 60.0
"""A connection that was not used for so long is closed at the next call."""
LIFETIME = 600.0
"""Seconds after which a connection is closed, once it is not in use.

libpq keeps buffers as large as the largest message that a connection has sent or received, and the server keeps what
the connection has used, too. Both are given back only when the connection is closed.
"""
CONNECT_TIMEOUT = 10
"""Seconds to wait until a new connection is established, unless the address sets another timeout."""

# Temporary errors: the server is shutting down, has crashed or is starting; it has too many connections; a
# serialization failure; a deadlock.
_TEMPORARY = ("57P01", "57P02", "57P03", "53300", "40001", "40P01")

_URL_FORM = (
    "Write it as postgresql://user:password@host:5432/database, with all characters of the password except letters and "
    "digits percent-encoded, such as %40 for @ and %2F for /."
)

T = TypeVar("T")


def import_psycopg() -> Any:
    """Return the `psycopg` module, or raise `MissingExtra` if it isn't installed."""
    try:
        import psycopg
        import psycopg.types.numeric
    except ImportError:
        raise MissingExtra("A PostgreSQL store needs psycopg: pip install 'longtalk[postgres]'.") from None
    return psycopg


def _may_expose_password(url: str, parameters: dict[str, Any]) -> bool:
    """Return whether part of the password may have been parsed as the host, port or database name in `parameters`.

    Error messages show these three, so they would expose that part.
    """
    _, _, rest = url.partition("://")
    _, _, name = rest.partition("?")[0].partition("/")
    # The name of an abstract socket begins with @.
    has_at = "@" in name or "@" in str(parameters.get("host") or "")[1:]
    return has_at or re.fullmatch(r"[0-9,]*", str(parameters.get("port") or "")) is None


class ConnectionLost(Exception):
    """Raised if a connection failed or could not be opened. The server may or may not have run the call."""


class _Claim:
    """A claim to one of the pool's connections. The pool grants at most as many claims as it may have connections.

    The claim ends when this object is garbage-collected, so that a call interrupted by Ctrl-C doesn't keep it.
    """

    __slots__ = ("__weakref__",)


class Pool:
    """A pool of at most `most` connections to one database."""

    def __init__(self, url: str, most: int) -> None:
        self._psycopg = import_psycopg()
        try:
            self._parameters = self._psycopg.conninfo.conninfo_to_dict(url)
        except self._psycopg.Error:
            # The original error may quote the password.
            raise InputError(f"The database URL is invalid. {_URL_FORM}") from None
        if _may_expose_password(url, self._parameters):
            raise InputError(
                f"The database URL is ambiguous: its password may be read as host, port or database. {_URL_FORM}"
            )
        self.most = most
        self._was_connected = False
        self._is_pooled: bool | None = None
        """Whether a pooler such as PgBouncer sits before the server. None until the first connection is open."""
        self._closed = False
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._claims: weakref.WeakSet[_Claim] = weakref.WeakSet()
        self._released: queue.SimpleQueue[None] = queue.SimpleQueue()
        """An item in this queue wakes a thread that waits for a connection."""
        self._idle: dict[Connection, float] = {}
        """The connections that are not in use, each with the time of its last use, in this order."""
        self._all: dict[Connection, float] = {}
        """All connections, each with the time at which it was opened."""

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler such as PgBouncer sits before the server. False before the first connection."""
        return bool(self._is_pooled)

    @property
    def errors(self) -> type[Exception]:
        """The class of all errors that a connection raises."""
        error: type[Exception] = self._psycopg.Error
        return error

    def __repr__(self) -> str:
        """Return the host, port and database name, without the password."""
        host, port, name, user = (self._parameters.get(key) for key in ("host", "port", "dbname", "user"))
        return f"{host or 'localhost'}{f':{port}' if port else ''}/{name or user or ''}"

    def run(self, work: Callable[[Connection], T], *, patience: float | None = None) -> T:
        """Call `work` with a connection and return its result. If the connection is lost, call `work` again.

        Raises `StoreError` at once if this pool has never reached the server, or else if the server isn't back after
        `patience` seconds (by default `PATIENCE`).
        """
        if self._closed:
            raise InputError("This store is closed. Open the database again with a new Postgres(url).")
        claim = _Claim()
        self._wait_for_claim(claim)
        try:
            return self._retry(work, PATIENCE if patience is None else patience)
        finally:
            with self._lock:
                self._claims.discard(claim)
                if self._released.empty():
                    self._released.put(None)

    def _wait_for_claim(self, claim: _Claim) -> None:
        """Wait until a connection may be used without exceeding the pool's maximum, and register the claim.

        A semaphore doesn't work here: if Ctrl-C arrives at the wrong moment, the semaphore is never released.
        """
        while True:
            with self._lock:
                if len(self._claims) < self.most:
                    self._claims.add(claim)
                    return
            with suppress(queue.Empty):
                self._released.get(timeout=_POLL)

    def _retry(self, work: Callable[[Connection], T], patience: float) -> T:
        """Call `work`, and again if its connection is lost, for at most `patience` seconds after the first loss."""
        end, wait = 0.0, RETRY_WAITS[0]
        while True:
            try:
                return self._try_once(work)
            except ConnectionLost as lost:
                now = time.monotonic()
                end = end or now + patience
                if not self._was_connected or now > end:
                    raise self._unavailable_error(lost) from lost.__cause__
                time.sleep(wait)
                wait = min(2 * wait, RETRY_WAITS[1])

    def _try_once(self, work: Callable[[Connection], T]) -> T:
        connection = self._acquire()
        try:
            return work(connection)
        except UnicodeEncodeError as problem:
            raise InputError(
                f"{problem.object[:60]!r} can't be stored: it has unpaired surrogates, which are not valid Unicode. "
                "Remove them."
            ) from None
        except self._psycopg.Error as problem:
            if connection.broken:
                # A server that shuts down breaks the idle connections, too.
                self._close_idle()
            if connection.broken or problem.sqlstate in _TEMPORARY:
                raise ConnectionLost(str(problem)) from problem
            raise self._translate_error(problem) from problem
        finally:
            self._release(connection)

    def _acquire(self) -> Connection:
        """Return an idle connection or a new one. Raise `ConnectionLost` if none can be opened."""
        with self._lock:
            if self._idle:
                # The one that was used last: the others can then become idle for long enough to be closed.
                return self._idle.popitem()[0]
        return self.connect()

    def connect(self) -> Connection:
        """Return a new connection for the caller's own use, in addition to those of the pool.

        The caller ends it with `disconnect`. Raises `ConnectionLost` if it can't be opened.
        """
        try:
            connection: Connection = self._psycopg.connect(
                **{"connect_timeout": CONNECT_TIMEOUT, **self._parameters, "client_encoding": "utf8"}, autocommit=True
            )
            self._disable_prepared_if_pooled(connection)
        except self._psycopg.Error as problem:
            raise ConnectionLost(str(problem)) from problem
        numeric = self._psycopg.types.numeric
        # Send all numbers as one type: otherwise a statement is prepared again for each combination of sizes.
        for dumper in (numeric.Int8Dumper, numeric.Int8BinaryDumper):
            connection.adapters.register_dumper(int, dumper)
        self._was_connected = True
        with self._lock:
            self._all[connection] = time.monotonic()
        return connection

    def _disable_prepared_if_pooled(self, connection: Connection) -> None:
        """Disable prepared statements if a pooler is between this process and the server.

        A pooler may send each transaction to another server process, which doesn't have the prepared statement or has
        another one of the same name. There is a pooler if the process that answers has another id than the connection
        reports.
        """
        if self._is_pooled is None:
            try:
                (answers,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
            except BaseException:
                connection.close()
                raise
            self._is_pooled = answers != connection.info.backend_pid
        if self._is_pooled:
            connection.prepare_threshold = None

    def _release(self, connection: Connection) -> None:
        """Return a connection to the pool, and close those that were not used for long.

        If the pool is closed, a transaction is open or the connection is old, the connection itself is closed.
        """
        idle, at = self._psycopg.pq.TransactionStatus.IDLE, time.monotonic()
        with self._lock:
            is_young = at - self._all.get(connection, at) < LIFETIME
            if is_young and not self._closed and connection.pgconn.transaction_status == idle:
                self._idle[connection] = at
                ended = [each for each, used in self._idle.items() if at - used >= IDLE_SECONDS]
            else:
                ended = [connection]
            for each in ended:
                self._idle.pop(each, None)
                self._all.pop(each, None)
        for each in ended:
            each.close()

    def disconnect(self, connection: Connection) -> None:
        """Close a connection that is in use."""
        with self._lock:
            self._all.pop(connection, None)
        connection.close()

    def close(self) -> None:
        """Close the pool and its idle connections. Calls in progress can finish."""
        self._closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, {}
            for connection in idle:
                self._all.pop(connection, None)
        for connection in idle:
            connection.close()

    def abandon(self) -> None:
        """Drop all connections in a forked child, without sending anything to the server.

        The parent process still uses the connections, so the server must not see them closed.
        """
        null = os.open(os.devnull, os.O_RDWR)
        for connection in self._all:
            if not connection.closed:
                # Whatever `close` sends goes to the null device.
                os.dup2(null, connection.fileno())
            connection.close()
        os.close(null)
        self._reset()

    def _unavailable_error(self, lost: ConnectionLost) -> LongtalkError:
        cause = " ".join(str(lost).split())
        if not self._was_connected:
            return StoreError(f"Can't connect to the database {self!r} ({cause}). Start the server or correct the URL.")
        return StoreError(
            f"The database {self!r} became unavailable and did not come back in time ({cause}). Try again later."
        )

    def _translate_error(self, problem: Any) -> LongtalkError:
        errors, cause = self._psycopg.errors, str(problem).strip().replace("\n", " ")
        if isinstance(problem, errors.InsufficientPrivilege):
            return InputError(
                f"The database {self!r} refused permission ({cause}). Grant the permissions listed in docs/stores.md."
            )
        if isinstance(problem, errors.ProgramLimitExceeded):
            return InputError(f"A value is too long for the database {self!r} ({cause}). Use a shorter value.")
        if isinstance(problem, (errors.DiskFull, errors.OutOfMemory)):
            return StoreError(
                f"The database {self!r} is out of disk space or memory ({cause}). Free some and try again."
            )
        return StoreError(f"The database {self!r} reported an error: {cause}. See the server's log.")


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_forking: list[Pool] = []


def _before_fork() -> None:
    _forking[:] = list(_pools)
    for pool in _forking:
        pool._lock.acquire()


def _after_fork() -> None:
    for pool in _forking:
        pool._lock.release()
    _forking.clear()


def _after_fork_in_child() -> None:
    for pool in _forking:
        pool.abandon()
    _forking.clear()


on_fork(_after_fork_in_child, before=_before_fork, in_parent=_after_fork)

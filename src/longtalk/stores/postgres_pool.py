"""Connections to a PostgreSQL server: few, shared by all threads, made anew when the server was away.

A call takes a connection for itself and gives it back. One that gets lost is tried again on another connection, for a
while: a server that restarts is back soon. That is safe because whatever is done twice is done once: who reads changes
nothing, a commit carries a stamp by which the server knows it (the function `write`), and to describe, redact, renew or
remove the same once more changes nothing either.

After a fork the child leaves the connections to its parent and makes its own.
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

from longtalk.errors import InputError, LongtalkError, StoreError

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

PATIENCE = 30.0
"""Seconds in which a server may come back."""
WAIT = 0.02, 0.5
"""Seconds between tries, at first and at last."""
_LISTEN = 0.05
"""Seconds after which whoever waits for a connection looks by itself."""
CONNECT = 10
"""Seconds to wait for a connection, unless the address says otherwise."""

# The server ends, has ended, begins; it has no connection left; others were in the way.
_PASSING = ("57P01", "57P02", "57P03", "53300", "40001", "40P01")

_FORM = (
    "postgresql://user@host:5432/name. In a password every sign but letters and digits has to be percent-encoded, "
    "such as %40 for @ and %2F for /."
)

T = TypeVar("T")


def library() -> Any:
    """psycopg, which is an extra."""
    try:
        import psycopg
        import psycopg.types.numeric
    except ImportError:
        raise InputError("A PostgreSQL store needs psycopg: pip install 'longtalk[postgres]'.") from None
    return psycopg


def _is_odd(url: str, where: dict[str, Any]) -> bool:
    """Whether a part of the password may have got into host, port or name, where it would be shown."""
    _, _, rest = url.partition("://")
    _, _, name = rest.partition("?")[0].partition("/")
    # A socket may have a name that begins with this sign.
    has_more = "@" in name or "@" in str(where.get("host") or "")[1:]
    return has_more or re.fullmatch(r"[0-9,]*", str(where.get("port") or "")) is None


class Lost(Exception):
    """There is no connection, or it broke. Nobody knows whether the server did what it was asked for."""


class _User:
    """Who may have a connection, as long as this object is there: whoever is stopped by Ctrl-C leaves none behind."""

    __slots__ = ("__weakref__",)


class Pool:
    """Connections to one database."""

    def __init__(self, url: str, most: int) -> None:
        self._psycopg = library()
        try:
            self._where = self._psycopg.conninfo.conninfo_to_dict(url)
        except self._psycopg.Error:
            # What it says may quote the password.
            raise InputError(f"That is not the address of a database: {_FORM}") from None
        if _is_odd(url, self._where):
            raise InputError(f"That address of a database can't be read: {_FORM}")
        self._most = most
        self._known = False
        self._is_pooled: bool | None = None
        """Whether there is a pooler on the way, such as PgBouncer; None until there was a connection."""
        self._closed = False
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._users: weakref.WeakSet[_User] = weakref.WeakSet()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()

    def __repr__(self) -> str:
        """Where it is, without the password."""
        where = self._where
        host, port, name = (where.get(key) for key in ("host", "port", "dbname"))
        return f"{host or 'localhost'}{f':{port}' if port else ''}/{name or where.get('user') or ''}"

    def run(self, work: Callable[[Connection], T], *, patience: float | None = None) -> T:
        """Do something with a connection; again, as long as it may help, when that gets lost."""
        if self._closed:
            raise InputError("This store is closed.")
        user = _User()
        self._wait_for_room(user)
        try:
            return self._patiently(work, PATIENCE if patience is None else patience)
        finally:
            with self._lock:
                self._users.discard(user)
                if self._bell.empty():
                    self._bell.put(None)

    def _wait_for_room(self, user: _User) -> None:
        """Until there are fewer users than connections may be. A semaphore that Ctrl-C strikes stays shut for ever."""
        while True:
            with self._lock:
                if len(self._users) < self._most:
                    self._users.add(user)
                    return
            with suppress(queue.Empty):
                self._bell.get(timeout=_LISTEN)

    def _patiently(self, work: Callable[[Connection], T], patience: float) -> T:
        end, wait = 0.0, WAIT[0]
        while True:
            try:
                return self._once(work)
            except Lost as lost:
                now = time.monotonic()
                end = end or now + patience
                if not self._known or now > end:
                    raise self._gone(lost) from lost.__cause__
                time.sleep(wait)
                wait = min(2 * wait, WAIT[1])

    def _once(self, work: Callable[[Connection], T]) -> T:
        connection = self._take()
        try:
            return work(connection)
        except UnicodeEncodeError as problem:
            raise InputError(f"{problem.object[:60]!r} can't be stored: it is not Unicode.") from None
        except self._psycopg.Error as problem:
            if connection.broken:
                # A server that ends takes all of them along.
                self._let_go()
            if connection.broken or problem.sqlstate in _PASSING:
                raise Lost(str(problem)) from problem
            raise self._error(problem) from problem
        finally:
            self._give(connection)

    def _take(self) -> Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        try:
            connection: Connection = self._psycopg.connect(
                **{"connect_timeout": CONNECT, **self._where, "client_encoding": "utf8"}, autocommit=True
            )
            self._prepare(connection)
        except self._psycopg.Error as problem:
            raise Lost(str(problem)) from problem
        numeric = self._psycopg.types.numeric
        # One type for all numbers: otherwise a statement is prepared anew for each combination of lengths.
        for dumper in (numeric.Int8Dumper, numeric.Int8BinaryDumper):
            connection.adapters.register_dumper(int, dumper)
        self._known = True
        with self._lock:
            self._all.add(connection)
        return connection

    def _prepare(self, connection: Connection) -> None:
        """Let statements be prepared only where the process that a connection was begun with is the one that answers.

        A pooler may send every transaction to another one, where what was prepared is not known, or is something else.
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

    def _give(self, connection: Connection) -> None:
        """Keep a connection for the next one, unless something is left of what it did."""
        idle = self._psycopg.pq.TransactionStatus.IDLE
        with self._lock:
            if not self._closed and connection.pgconn.transaction_status == idle:
                self._idle.append(connection)
                return
            self._all.discard(connection)
        connection.close()

    def close(self) -> None:
        """Let go of all. What others still do comes to its end."""
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        """Close those that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._all.difference_update(idle)
        for connection in idle:
            connection.close()

    def leave(self) -> None:
        """In a forked child: forget the connections without a word to the server, which would hear the parent."""
        mine, theirs = os.open(os.devnull, os.O_RDWR), self._all
        for connection in theirs:
            if not connection.closed:
                os.dup2(mine, connection.fileno())
            connection.close()
        os.close(mine)
        self._begin()

    def _gone(self, lost: Lost) -> LongtalkError:
        said = str(lost).strip().replace("\n", " ")
        if not self._known:
            return StoreError(f"There is no way to the database {self!r}: start it, or name another ({said}).")
        return StoreError(f"The database {self!r} is away, and did not come back in time: try again ({said}).")

    def _error(self, problem: Any) -> LongtalkError:
        errors, said = self._psycopg.errors, str(problem).strip().replace("\n", " ")
        if isinstance(problem, errors.InsufficientPrivilege):
            return InputError(
                f"The database {self!r} does not allow this: see docs/stores.md for what to grant ({said})."
            )
        if isinstance(problem, errors.ProgramLimitExceeded):
            return InputError(f"The database {self!r} can't hold anything that long ({said}).")
        if isinstance(problem, (errors.DiskFull, errors.OutOfMemory)):
            return StoreError(f"The database {self!r} has no room left: nothing of this change was saved ({said}).")
        return StoreError(f"The database {self!r}: {said}.")


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
        pool.leave()
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)

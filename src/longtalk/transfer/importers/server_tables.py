"""Read the tables of a PostgreSQL database in one read-only transaction, as they were when it began."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from longtalk.errors import InputError
from longtalk.stores.postgres.pool import ConnectionLost, Pool

_ADDRESS = re.compile(r"\s*postgres(?:ql)?(?:\+\w+)?://", re.IGNORECASE)
_ROWS = 1_000
"""How many rows are fetched at once, so that a large table does not fill the memory."""
_LIST_TABLES = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_table_is_visible(oid)"


def is_server(name: object) -> bool:
    """Return True if `name` is the address of a PostgreSQL database."""
    return isinstance(name, str) and _ADDRESS.match(name) is not None


class DatabaseAddress(str):
    """The address of a PostgreSQL database to import from, such as "postgresql://user@host/database".

    A plain string is always the content of a file, so that an uploaded text can't make a program connect anywhere.
    """

    __slots__ = ()


class ServerTables:
    """A read-only transaction on a PostgreSQL database."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._numbers = count()

    def list_tables(self) -> set[str]:
        """Return the names of the tables and views on the search path, without those of the system."""
        return {name for (name,) in self.select(_LIST_TABLES) if not name.startswith(("pg_", "_pg_", "sql_"))}

    def select(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run a query, and return an iterator over its rows. Two queries can be read at the same time."""
        with self._connection.cursor(name=f"import_{next(self._numbers)}") as cursor:
            cursor.itersize = _ROWS
            cursor.execute(sql, values or None)
            yield from cursor


@contextmanager
def open_tables(address: str) -> Iterator[ServerTables]:
    """Open a transaction on the database at an address, such as `postgresql://user@host/database`.

    An address in the form of SQLAlchemy, such as `postgresql+asyncpg://…`, is accepted too. Raises `InputError` if the
    database can't be read.
    """
    pool = Pool(_ADDRESS.sub("postgresql://", address), 1)
    try:
        # The first connection fails with an error that says why.
        pool.run(lambda connection: connection.execute("SELECT 1"))
        connection = pool.connect()
        try:
            connection.execute("SET TIME ZONE 'UTC'")
            connection.execute("SET statement_timeout = 0")
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield ServerTables(connection)
        finally:
            pool.disconnect(connection)
    except ConnectionLost as lost:
        raise InputError(f"The database {pool!r} can't be read: {_join_lines(lost)}.") from None
    except pool.errors as problem:
        raise InputError(f"The database {pool!r} can't be read: {_join_lines(problem)}.") from None
    finally:
        pool.close()


def _join_lines(problem: Exception) -> str:
    return " ".join(str(problem).split()).rstrip(".")

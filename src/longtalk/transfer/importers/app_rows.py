"""Read the columns that a mapping names from the tables of an app, in SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from longtalk._util import json_bytes
from longtalk.stores.sqlite.database import Database
from longtalk.transfer.importers.server_tables import ServerTables

Row = tuple[Any, ...]


class AppRows(Protocol):
    """The tables of an app."""

    def list_tables(self) -> list[str]:
        """Return the names of all tables."""
        ...

    def list_columns(self, table: str) -> list[str]:
        """Return the names of a table's columns; empty if the table does not exist."""
        ...

    def read(self, table: str, columns: Sequence[str], group: str = "", order: Sequence[str] = ()) -> Iterator[Row]:
        """Yield the values of these columns, None for an empty name.

        With `group`, rows with the same text in that column follow each other, ordered by the columns in `order` and
        then as the database stores them.
        """
        ...

    def count(self, table: str, column: str) -> dict[Any, int]:
        """Return how many rows have each value of a column."""
        ...


class SqliteRows:
    """The tables of an app in a SQLite file."""

    def __init__(self, db: Database, tables: set[str]) -> None:
        self._db = db
        self._tables = tables

    def list_tables(self) -> list[str]:
        return sorted(self._tables)

    def list_columns(self, table: str) -> list[str]:
        return [name for _, name, *_ in self._db.execute(f"PRAGMA table_info({quote_name(table)})")]

    def read(self, table: str, columns: Sequence[str], group: str = "", order: Sequence[str] = ()) -> Iterator[Row]:
        values = ", ".join(quote_name(column) if column else "NULL" for column in columns)
        keys = [f"CAST({quote_name(group)} AS TEXT)", *map(quote_name, order)] if group else []
        sql = f"SELECT {values} FROM {quote_name(table)}"  # noqa: S608
        yield from self._db.execute(sql + (f" ORDER BY {', '.join(keys)}" if keys else ""))

    def count(self, table: str, column: str) -> dict[Any, int]:
        sql = f"SELECT {quote_name(column)}, count(*) FROM {quote_name(table)} GROUP BY 1"  # noqa: S608
        return dict(self._db.execute(sql).fetchall())


class ServerRows:
    """The tables of an app in a PostgreSQL database. The name of a table may begin with a schema."""

    def __init__(self, tables: ServerTables) -> None:
        self._tables = tables

    def list_tables(self) -> list[str]:
        return sorted(self._tables.list_tables())

    def list_columns(self, table: str) -> list[str]:
        rows = self._tables.select(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (_quote_table(table),),
        )
        return [name for (name,) in rows]

    def read(self, table: str, columns: Sequence[str], group: str = "", order: Sequence[str] = ()) -> Iterator[Row]:
        # As JSON, since an app may use any type: times, UUIDs, numbers, JSON itself.
        values = ", ".join(f"to_json({quote_name(column)})::text" if column else "NULL" for column in columns)
        keys = [f'{quote_name(group)}::text COLLATE "C"', *map(quote_name, order)] if group else []
        # A view and a partitioned table have no order of their own.
        keys += ["ctid"] if group and self._is_plain(table) else []
        sql = f"SELECT {values} FROM {_quote_table(table)}" + (f" ORDER BY {', '.join(keys)}" if keys else "")  # noqa: S608
        for row in self._tables.select(sql):
            yield tuple(None if value is None else json_bytes.value(value.encode()) for value in row)

    def _is_plain(self, table: str) -> bool:
        rows = self._tables.select("SELECT relkind FROM pg_class WHERE oid = to_regclass(%s)", (_quote_table(table),))
        return [kind for (kind,) in rows] == ["r"]

    def count(self, table: str, column: str) -> dict[Any, int]:
        sql = f"SELECT {quote_name(column)}::text, count(*) FROM {_quote_table(table)} GROUP BY 1"  # noqa: S608
        return dict(self._tables.select(sql))


def quote_name(name: str) -> str:
    """Return the name of a table or column as SQL."""
    return '"' + name.replace('"', '""') + '"'


def _quote_table(name: str) -> str:
    return ".".join(map(quote_name, name.split(".")))

"""Other tools' SQLite files: opened for reading alone, and told apart by their tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from longtalk.errors import InputError
from longtalk.imports import agents_sdk, langgraph, llm_logs
from longtalk.imports.others import Others
from longtalk.intake import Found
from longtalk.stores.sqlite_file import Database
from longtalk.stores.sqlite_schema import APPLICATION

KNOWN = "the log of llm, LangGraph's checkpoints (SqliteSaver), and sessions of the OpenAI Agents SDK (SQLiteSession)"


def opened_database(source: bytes | Path) -> Others:
    """What a database holds. Raises `InputError` when that is nothing known here."""
    with _reading(source) as db:
        if db.pragma("application_id") == APPLICATION:
            raise InputError("This is a store of Longtalk's own: `longtalk copy` takes conversations out of it.")
        rows = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        tables = {name for (name,) in rows}
        for tool in (agents_sdk, langgraph):
            if tables >= tool.TABLES:
                return Others(tool.TOOL, tool.count(db), lambda tool=tool: _each(source, tool.read))  # type: ignore[misc]
        if llm_logs.is_one(tables):
            held = llm_logs.count(db, tables)
            return Others(llm_logs.TOOL, held, lambda: _each(source, lambda db: llm_logs.read(db, tables)))
    names = ", ".join(sorted(tables)[:5]) or "none"
    raise InputError(f"This database has tables that are not known here ({names}). Read are {KNOWN}.")


def _each(source: bytes | Path, read: Callable[[Database], Iterator[Found]]) -> Iterator[Found]:
    with _reading(source) as db:
        yield from read(db)


@contextmanager
def _reading(source: bytes | Path) -> Iterator[Database]:
    try:
        db = _connection(source)
        try:
            yield db
        finally:
            db.close()
    except UnicodeDecodeError:
        raise InputError("The database can't be read: a text in it is not UTF-8.") from None
    except apsw.Error as problem:
        raise InputError(f"The database can't be read: {problem}.") from None


def _connection(source: bytes | Path) -> apsw.Connection:
    if isinstance(source, bytes):
        db = apsw.Connection(":memory:")
        # Bytes 18 and 19 say that there may be a log beside the file: here there is none.
        db.deserialize("main", source[:18] + b"\1\1" + source[20:])
        return db
    address = f"file:{quote(os.fsencode(source.absolute()))}"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        db = apsw.Connection(f"{address}?mode=ro", flags=flags)
        db.set_busy_timeout(10_000)
        db.execute("SELECT 1 FROM sqlite_schema").get  # noqa: B018
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        # A folder that nobody may write to: then nobody does.
        return apsw.Connection(f"{address}?immutable=1", flags=flags)
    return db

"""Open the SQLite files of other tools read-only, and recognize the tool by the tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from longtalk.errors import InputError
from longtalk.stores.sqlite.database import Database
from longtalk.stores.sqlite.schema import APPLICATION
from longtalk.transfer.importers import agents_sdk, langgraph, llm_logs
from longtalk.transfer.importers.llm_messages import TOOL
from longtalk.transfer.importers.tool_file import ToolFile
from longtalk.transfer.load import ParsedConversation

SUPPORTED = (
    "the log of llm, LangGraph's checkpoints (SqliteSaver), and sessions of the OpenAI Agents SDK (SQLiteSession)"
)


def open_database(source: bytes | Path) -> ToolFile:
    """Open a SQLite file of another tool; raise `InputError` if no supported tool wrote it."""
    with _open(source) as db:
        if db.pragma("application_id") == APPLICATION:
            raise InputError("This is a Longtalk store. To copy conversations from it, use `longtalk copy`.")
        rows = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        tables = {name for (name,) in rows}
        for tool in (agents_sdk, langgraph):
            if tables >= tool.TABLES:
                return ToolFile(tool.TOOL, tool.count(db), lambda tool=tool: _read_each(source, tool.read))  # type: ignore[misc]
        if llm_logs.matches(tables):
            count = llm_logs.count(db, tables)
            return ToolFile(TOOL, count, lambda: _read_each(source, lambda db: llm_logs.read(db, tables)))
    names = ", ".join(sorted(tables)[:5]) or "none"
    raise InputError(f"No supported tool wrote this database (its tables: {names}). Supported: {SUPPORTED}.")


def _read_each(
    source: bytes | Path, read: Callable[[Database], Iterator[ParsedConversation]]
) -> Iterator[ParsedConversation]:
    with _open(source) as db:
        yield from read(db)


@contextmanager
def _open(source: bytes | Path) -> Iterator[Database]:
    try:
        db = _connect(source)
        try:
            yield db
        finally:
            db.close()
    except UnicodeDecodeError:
        raise InputError("The database can't be read: a text in it is not UTF-8.") from None
    except apsw.Error as problem:
        raise InputError(f"The database can't be read: {problem}.") from None


def _connect(source: bytes | Path) -> apsw.Connection:
    if isinstance(source, bytes):
        db = apsw.Connection(":memory:")
        # Bytes 18 and 19 say that the file uses a write-ahead log, which a database in memory can't have.
        db.deserialize("main", source[:18] + b"\1\1" + source[20:])
        return db
    address = f"file:{quote(os.fsencode(source.absolute()))}"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        db = apsw.Connection(f"{address}?mode=ro", flags=flags)
        db.set_busy_timeout(10_000)
        db.execute("SELECT 1 FROM sqlite_schema").get  # noqa: B018
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        # The folder is read-only, so no other process can write to the file.
        return apsw.Connection(f"{address}?immutable=1", flags=flags)
    return db

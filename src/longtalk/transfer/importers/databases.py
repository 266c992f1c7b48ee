"""Open the SQLite files of other tools read-only, and recognize the tool by the tables.

A file may come from an untrusted source. Only ordinary tables are read, after a check that their pages are sound:
views, virtual tables and generated columns could produce any amount of data. The work of SQLite and the data that it
returns are limited in relation to the size of the file, and an interrupt (Ctrl-C) ends a query. SQLite writes no files
next to the original: a database with a write-ahead log is first copied, together with the log, to a temporary folder.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from longtalk.errors import InputError
from longtalk.stores.sqlite.database import Database
from longtalk.stores.sqlite.schema import APPLICATION
from longtalk.transfer.importers import agents_sdk, app_tables, langgraph, llm_logs
from longtalk.transfer.importers.app_rows import SqliteRows, quote_name
from longtalk.transfer.importers.llm_messages import TOOL
from longtalk.transfer.importers.mapping import TableMapping
from longtalk.transfer.importers.tool_file import ToolFile
from longtalk.transfer.limits import REFERENCE_BYTES, Budget, TooLarge
from longtalk.transfer.load import ParsedConversation

SUPPORTED = (
    "the log of llm, LangGraph's checkpoints (SqliteSaver), and sessions of the OpenAI Agents SDK (SQLiteSession)"
)
ALLOWED_STEPS, STEPS_PER_BYTE = 100_000_000, 2_000
"""For a file of N bytes, SQLite may run `ALLOWED_STEPS + STEPS_PER_BYTE * N` virtual machine instructions."""
_STEPS_BETWEEN_CHECKS = 10_000
_MAX_DEFAULTS = 1_000
"""The maximum length of a table's default values. SQLite repeats them for each row that lacks a value."""
_TABLES = agents_sdk.TABLES | langgraph.TABLES | llm_logs.TABLES
_CREATE_TABLE = re.compile(r"\s*CREATE\s+TABLE\b", re.IGNORECASE)
_UNSOUND = re.compile(r"\b(?:tree|page) \d+", re.IGNORECASE)
_COPY_ATTEMPTS = 5
_SETTINGS = (
    (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
    (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
)
"""The settings that SQLite recommends for untrusted files (https://sqlite.org/security.html)."""

_Read = Callable[[Database, Budget], Iterator[ParsedConversation]]


def open_app_database(source: bytes | Path, mapping: TableMapping) -> ToolFile:
    """Open a SQLite file with an app's own tables; raise `InputError` unless they agree with the mapping."""
    named = mapping.list_tables()
    with _open(source) as (db, _):
        rows = SqliteRows(db, _list_tables(db, named))
        app_tables.check_tables(rows, mapping)
        count = app_tables.count(rows, mapping)

    def read(db: Database, budget: Budget) -> Iterator[ParsedConversation]:
        return app_tables.read(SqliteRows(db, _list_tables(db, named)), mapping, budget)

    return ToolFile(app_tables.TOOL, count, lambda: _read_each(source, read), mapping.has_owners)


def open_database(source: bytes | Path) -> ToolFile:
    """Open a SQLite file of another tool; raise `InputError` if no supported tool wrote it."""
    with _open(source) as (db, _):
        if db.pragma("application_id") == APPLICATION:
            raise InputError("This is a Longtalk store. To copy conversations from it, use `longtalk copy`.")
        tables = _list_tables(db)
        for tool in (agents_sdk, langgraph):
            if tables >= tool.TABLES:
                return ToolFile(tool.TOOL, tool.count(db), lambda tool=tool: _read_each(source, tool.read))  # type: ignore[misc]
        if llm_logs.matches(tables):
            count = llm_logs.count(db, tables)
            return ToolFile(
                TOOL, count, lambda: _read_each(source, lambda db, budget: llm_logs.read(db, tables, budget))
            )
    names = ", ".join(sorted(tables)[:5]) or "none"
    raise InputError(
        f"No supported tool wrote this database (its tables: {names}). Supported: {SUPPORTED}. For tables of your own, "
        f"pass a mapping."
    )


def _read_each(source: bytes | Path, read: _Read) -> Iterator[ParsedConversation]:
    with _open(source) as (db, budget):
        _list_tables(db)
        yield from read(db, budget)


def _list_tables(db: Database, named: Collection[str] = _TABLES) -> set[str]:
    """Return the names of the tables; raise `InputError` if a table in `named` is not ordinary and sound."""
    rows = db.execute("SELECT name, type, sql FROM sqlite_schema WHERE type IN ('table', 'view')").fetchall()
    # SQLite ignores the case of names.
    found = {name.lower(): (kind, str(sql)) for name, kind, sql in rows}
    for name in sorted({name.lower() for name in named} & found.keys()):
        kind, sql = found[name]
        if kind == "table" and not _CREATE_TABLE.match(sql):
            kind = "virtual table"
        columns = db.execute(f"PRAGMA table_xinfo({quote_name(name)})").fetchall() if kind == "table" else []
        if kind != "table" or any(hidden for *_, hidden in columns):
            what = "table with generated columns" if kind == "table" else kind
            raise InputError(
                f"Its {name!r} is a {what}, but only real tables are read, because anything else could produce any "
                "amount of data. Copy the data into a table with this name, and import again."
            )
        if sum(len(str(default or "")) for *_, default, _, _ in columns) > _MAX_DEFAULTS:
            raise InputError(
                f"The default values of its table {name!r} have more than {_MAX_DEFAULTS:,} characters, the limit. "
                "Remove them from the table, and import again."
            )
        problem = next(
            (text for (text,) in db.execute(f"PRAGMA quick_check({quote_name(name)})") if _UNSOUND.search(text)), None
        )
        if problem is not None:
            raise InputError(
                f"The database can't be read: its table {name!r} is damaged ({problem}). Repair it with the command "
                "`.recover` of sqlite3, and import the result."
            )
    return {name for name, (kind, _) in found.items() if kind == "table"}


@contextmanager
def _open(source: bytes | Path) -> Iterator[tuple[Database, Budget]]:
    try:
        with tempfile.TemporaryDirectory(prefix="longtalk-import-", ignore_cleanup_errors=True) as folder:
            db, size = _connect(source, Path(folder))
            try:
                budget = Budget(size)
                _restrict(db, size, budget)
                yield db, budget
            finally:
                db.close()
    except UnicodeDecodeError:
        raise InputError("The database can't be read: a text in it is not UTF-8.") from None
    except apsw.ReadOnlyError:
        raise InputError(
            "The database can't be read, because a program was interrupted while writing to it. Open the database in "
            "that program to repair it, then import it again."
        ) from None
    except apsw.Error as problem:
        raise InputError(f"The database can't be read: {problem}.") from None


def _restrict(db: apsw.Connection, size: int, budget: Budget) -> None:
    """Let SQLite do only as much work, and return only as much data, as reading a database of `size` bytes needs."""
    allowed = ALLOWED_STEPS + STEPS_PER_BYTE * size
    steps = 0

    def count_steps() -> bool:
        nonlocal steps
        steps += _STEPS_BETWEEN_CHECKS
        if steps > allowed:
            raise TooLarge(
                f"The database has {size:,} bytes, but reading it takes more than {allowed:,} steps, the limit for a "
                "database of this size. If you trust it, split it into databases with fewer conversations."
            )
        return False

    def count_bytes(_: apsw.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        budget.spend(REFERENCE_BYTES + sum(len(value) for value in row if isinstance(value, str | bytes)))
        return row

    db.set_progress_handler(count_steps, _STEPS_BETWEEN_CHECKS)
    db.row_trace = count_bytes
    db.limit(apsw.SQLITE_LIMIT_LENGTH, min(max(1_000_000, size), 2**31 - 1))
    for setting, value in _SETTINGS:
        db.config(setting, value)
    db.pragma("cell_size_check", True)
    db.pragma("ignore_check_constraints", True)


def _connect(source: bytes | Path, folder: Path) -> tuple[apsw.Connection, int]:
    """Return a connection to a database, and its size in bytes. If it must be copied, the copy is made in `folder`."""
    if isinstance(source, bytes):
        db = apsw.Connection(":memory:")
        # Bytes 18 and 19 say whether there is a write-ahead log. A database in memory can't have one.
        db.deserialize("main", source[:18] + b"\1\1" + source[20:])
        return db, len(source)
    # If the path is a link, the log is next to the file that it points to.
    path = source.resolve()
    with path.open("rb") as file:
        uses_log = file.read(20)[18:] != b"\1\1"
    if uses_log:
        path = _copy(path, folder)
    address = f"file:{quote(os.fsencode(path))}?mode=ro"
    db = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    db.set_busy_timeout(10_000)
    return db, sum(each.stat().st_size for each in (path, _log_of(path)) if each.is_file())


def _log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def _copy(path: Path, folder: Path) -> Path:
    """Copy a database and its write-ahead log to a folder, and return the path of the copy.

    To read such a database in place, SQLite would create files next to it. Raises `InputError` if the files change
    during each of several attempts to copy them.
    """
    copy = folder / "copy.db"
    for _ in range(_COPY_ATTEMPTS):
        before = _describe_files(path)
        shutil.copyfile(path, copy)
        _log_of(copy).unlink(missing_ok=True)
        if _log_of(path).is_file():
            shutil.copyfile(_log_of(path), _log_of(copy))
        if _describe_files(path) == before:
            return copy
    raise InputError("Another program keeps writing to the database. Close that program, and import again.")


def _describe_files(path: Path) -> list[tuple[int, int, int]]:
    stats = [each.stat() for each in (path, _log_of(path)) if each.is_file()]
    return [(stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]

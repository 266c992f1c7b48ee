"""Open PostgreSQL databases of other tools, and recognize the tools by their tables.

One database can have the tables of several tools: then the conversations of all of them are read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from longtalk.errors import InputError
from longtalk.transfer.importers import agents_sdk, app_tables, langgraph
from longtalk.transfer.importers.app_rows import ServerRows
from longtalk.transfer.importers.mapping import TableMapping
from longtalk.transfer.importers.server_tables import ServerTables, open_tables
from longtalk.transfer.importers.tool_file import ToolFile
from longtalk.transfer.limits import Budget
from longtalk.transfer.load import ParsedConversation

SUPPORTED = "LangGraph's checkpoints (PostgresSaver) and sessions of the OpenAI Agents SDK (SQLAlchemySession)"
_TOOLS: tuple[tuple[Any, set[str]], ...] = (
    (langgraph, langgraph.POSTGRES_TABLES),
    (agents_sdk, agents_sdk.TABLES),
)


def open_server(address: str) -> ToolFile:
    """Open a database of other tools; raise `InputError` if it has no tables of a supported tool."""
    with open_tables(address) as db:
        tables = db.list_tables()
        found = [tool for tool, needed in _TOOLS if tables >= needed]
        count = sum(tool.count_postgres(db) for tool in found)
    if not found:
        names = ", ".join(sorted(tables)[:5]) or "none"
        raise InputError(
            f"The database has no tables of a supported tool (its tables: {names}). Supported: {SUPPORTED}. For tables "
            "of your own, pass a mapping. To copy from a Longtalk store, use `longtalk copy`."
        )

    def read(db: ServerTables, budget: Budget) -> Iterator[ParsedConversation]:
        for tool in found:
            yield from tool.read_postgres(db, budget)

    return ToolFile(found[0].TOOL, count, lambda: _read_each(address, read))


def open_app_server(address: str, mapping: TableMapping) -> ToolFile:
    """Open a database with an app's own tables; raise `InputError` unless they agree with the mapping."""
    with open_tables(address) as db:
        app_tables.check_tables(ServerRows(db), mapping)
        count = app_tables.count(ServerRows(db), mapping)

    def read(db: ServerTables, budget: Budget) -> Iterator[ParsedConversation]:
        return app_tables.read(ServerRows(db), mapping, budget)

    return ToolFile(app_tables.TOOL, count, lambda: _read_each(address, read), mapping.has_owners)


def _read_each(
    address: str, read: Callable[[ServerTables, Budget], Iterator[ParsedConversation]]
) -> Iterator[ParsedConversation]:
    with open_tables(address) as db:
        # A server is the user's own, so the size of what it has is not limited.
        yield from read(db, Budget(sys.maxsize))

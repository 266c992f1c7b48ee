"""Import sessions of the OpenAI Agents SDK, which stores one item of the Responses API per row.

`SQLiteSession` and `SQLAlchemySession` have the same tables.

Items keep their exact bytes. Consecutive items from the model become one answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from longtalk._util import json_bytes
from longtalk.stores.sqlite.database import Database
from longtalk.transcript.pack import Entry
from longtalk.transfer.importers.server_tables import ServerTables
from longtalk.transfer.importers.tree import (
    ConvertedMessage,
    ToolConversation,
    append_messages,
    convert,
    decode_text,
    parse_time,
    report_malformed,
)
from longtalk.transfer.limits import Budget
from longtalk.transfer.load import ParsedConversation
from longtalk.wires.neutral import system
from longtalk.wires.openai_responses.items import CALLS
from longtalk.wires.openai_responses.wire import WIRE

TOOL = "agents-sdk"
TABLES = {"agent_sessions", "agent_messages"}
_Row = tuple[int, str, str]


def count(db: Database) -> int:
    """Return the number of sessions in the database."""
    number: int = db.execute("SELECT count(*) FROM agent_sessions").get
    return number


def read(db: Database, budget: Budget) -> Iterator[ParsedConversation]:
    """Yield the conversation in each session, oldest session first."""
    sessions = db.execute("SELECT rowid, CAST(session_id AS BLOB) FROM agent_sessions ORDER BY created_at, rowid")
    for row, raw_id in sessions.fetchall():
        try:
            name = decode_text(raw_id)
            created, updated = next(
                db.execute("SELECT created_at, updated_at FROM agent_sessions WHERE rowid = ?", (row,))
            )
            rows = db.execute(
                "SELECT id, message_data, created_at FROM agent_messages WHERE session_id = ? ORDER BY id", (name,)
            ).fetchall()
            yield _convert_session(name, created, updated, rows, budget)
        except (ValueError, TypeError, AttributeError) as problem:
            yield report_malformed(raw_id, problem)


def count_postgres(db: ServerTables) -> int:
    """Return the number of sessions in a database of `SQLAlchemySession`."""
    ((number,),) = db.select("SELECT count(*) FROM agent_sessions")
    return int(number)


def read_postgres(db: ServerTables, budget: Budget) -> Iterator[ParsedConversation]:
    """Yield the conversation in each session of a PostgreSQL database, oldest session first."""
    sessions = db.select(
        "SELECT session_id, created_at::text, updated_at::text FROM agent_sessions ORDER BY created_at, session_id"
    )
    for name, created, updated in sessions:
        try:
            rows = db.select(
                "SELECT id, message_data, created_at::text FROM agent_messages WHERE session_id = %s ORDER BY id",
                (name,),
            )
            yield _convert_session(name, created, updated, list(rows), budget)
        except (ValueError, TypeError, AttributeError) as problem:
            yield report_malformed(name, problem)


def _convert_session(name: str, created: Any, updated: Any, rows: list[_Row], budget: Budget) -> ParsedConversation:
    source = ToolConversation(
        tool=TOOL,
        id=name,
        created=parse_time(created),
        updated=parse_time(updated),
        ends=[append_messages(None, _convert_rows(rows))],
    )
    return convert(source, Counter(), budget)


def _convert_rows(rows: Sequence[_Row]) -> Iterator[ConvertedMessage]:
    answer: list[_Row] = []
    for row in rows:
        entry = _convert_input(row)
        if entry is None:
            answer.append(row)
            continue
        yield from _convert_answer(answer)
        answer = []
        yield ConvertedMessage(key=str(row[0]), entry=entry)
    yield from _convert_answer(answer)


def _convert_input(row: _Row) -> Entry | None:
    """Return the entry for an item that the app sent (a message or a tool result); None for an item from the model."""
    native, at = row[1].encode(), parse_time(row[2])
    item = json_bytes.fields(native)
    if item.get("type") in CALLS.values():
        return Entry(role="tool", wire=WIRE.name, native=native, at=at)
    role = json_bytes.text(item.get("role", b"null"))
    if role == "user":
        return Entry(role="user", wire=WIRE.name, native=native, at=at)
    if role in ("system", "developer"):
        return system(WIRE.view(native).text, at=at)
    return None


def _convert_answer(rows: Sequence[_Row]) -> Iterator[ConvertedMessage]:
    if rows:
        native = b'{"output":[%s]}' % b",".join(row[1].encode() for row in rows)
        entry = Entry(role="assistant", wire=WIRE.name, native=native, at=parse_time(rows[-1][2]))
        items: Any = [row[0] for row in rows]
        yield ConvertedMessage(key=str(rows[0][0]), entry=entry, meta={"items": items} if len(items) > 1 else {})

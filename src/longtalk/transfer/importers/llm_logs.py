"""Import the log of the command-line tool `llm` (`logs.db`).

Since about version 0.32, the log has messages that consist of parts and refer to the previous message (`messages`,
`parts`), and threads that refer to their last message (`threads`). Earlier versions stored a row for each prompt and
response (`responses`), with tool calls and results in separate tables. A file may have both layouts. The text of
fragments is inserted where they were used, and images are imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import apsw

from longtalk._util import json_bytes
from longtalk.stores.sqlite.database import Database
from longtalk.transfer.importers.llm_legacy import read_conversation
from longtalk.transfer.importers.llm_messages import (
    THOUGHTS,
    TOOL,
    Attachments,
    build_call,
    build_message,
    build_result,
)
from longtalk.transfer.importers.tree import (
    EMPTY,
    ConvertedMessage,
    ToolConversation,
    append_messages,
    convert,
    decode_text,
    derive_id,
    parse_time,
    report_malformed,
)
from longtalk.transfer.limits import Budget
from longtalk.transfer.load import ParsedConversation

TABLES = {
    *("threads", "messages", "parts", "turns", "conversations", "responses", "attachments", "fragments"),
    *("prompt_attachments", "prompt_fragments", "system_fragments", "tool_calls", "tool_results"),
}
"""The tables that are read, in either layout, if the log has them."""
# If a table is missing, only the conversations that need it can't be read.
_ERRORS = (ValueError, TypeError, KeyError, AttributeError, apsw.SQLError)


def has_threads(tables: set[str]) -> bool:
    """Return True if these are the tables of a log in the current layout, which has threads."""
    return {"threads", "messages", "parts", "turns"} <= tables


def matches(tables: set[str]) -> bool:
    """Return True if these are the tables of an `llm` log, in either layout."""
    return has_threads(tables) or {"conversations", "responses"} <= tables


def count(db: Database, tables: set[str]) -> int:
    """Return the number of conversations in the log, in both layouts together."""
    return len(_list_threads(db, tables)) + len(_list_conversations(db, tables))


def read(db: Database, tables: set[str], budget: Budget) -> Iterator[ParsedConversation]:
    """Yield the conversations in both layouts, those in the current layout first."""
    for name, title, tip in _list_threads(db, tables):
        try:
            end = None if tip is None else decode_text(tip)
            yield _read_thread(db, decode_text(name), decode_text(title), end, budget)
        except _ERRORS as problem:
            yield report_malformed(name, problem)
    for name, title in _list_conversations(db, tables):
        try:
            yield read_conversation(db, tables, decode_text(name), decode_text(title), budget)
        except _ERRORS as problem:
            yield report_malformed(name, problem)


_NAMES = "CAST(id AS BLOB), CAST(name AS BLOB)"
"""The id and name columns as bytes: invalid UTF-8 then affects one conversation, not the whole query."""


def _list_threads(db: Database, tables: set[str]) -> list[Any]:
    rows = f"SELECT {_NAMES}, CAST(tip_message_hash AS BLOB) FROM threads ORDER BY id"  # noqa: S608
    return list(db.execute(rows).fetchall()) if has_threads(tables) else []


def _list_conversations(db: Database, tables: set[str]) -> list[Any]:
    if not {"conversations", "responses"} <= tables:
        return []
    where = " WHERE id NOT IN (SELECT id FROM threads)" if has_threads(tables) else ""
    return list(db.execute(f"SELECT {_NAMES} FROM conversations{where} ORDER BY id").fetchall())  # noqa: S608


def _read_thread(db: Database, name: str, title: str, tip: str | None, budget: Budget) -> ParsedConversation:
    notes: Counter[str] = Counter()
    attachments = Attachments(db, notes)
    turns = db.execute(
        "SELECT parent_message_hash, tip_message_hash, model, datetime_utc FROM turns WHERE thread_id = ? ORDER BY id",
        (name,),
    ).fetchall()
    # The prompt and the answer of a turn get the time of the turn; the answer also gets its model.
    times = {hash_: parse_time(at) for before, tip, _, at in reversed(turns) for hash_ in (before, tip)}
    models = {tip: str(model or "") for _, tip, model, _ in turns}
    messages: list[ConvertedMessage] = []
    at = min((time for time in times.values() if time), default=0)
    for hash_, role in _list_path(db, tip):
        at = times.get(hash_) or at
        messages += _convert_message(db, hash_, role, at, models.get(hash_, ""), attachments, notes)
    source = ToolConversation(tool=TOOL, id=name, title=title, ends=[append_messages(None, messages)])
    return convert(source, notes, budget)


def _list_path(db: Database, tip: str | None) -> list[tuple[str, str]]:
    """Return the hash and role of each message on the path from the first message to `tip`."""
    path: dict[str, str] = {}
    while tip is not None and tip not in path:
        row = db.execute("SELECT parent_hash, role FROM messages WHERE hash = ?", (tip,)).fetchone()
        if row is None:
            raise ValueError(f"message {tip} is missing")
        path[tip], tip = str(row[1]), row[0]
    return list(reversed(path.items()))


def _convert_message(
    db: Database, name: str, role: str, at: int, model: str, attachments: Attachments, notes: Counter[str]
) -> Iterator[ConvertedMessage]:
    """Convert a message to entries. Each tool result becomes an entry of its own."""
    parts: list[Any] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    rows = db.execute("SELECT type, text, payload FROM parts WHERE message_hash = ? ORDER BY position", (name,))
    for number, (kind, text, payload) in enumerate(rows.fetchall()):
        data = json_bytes.value(payload.encode()) if payload else {}
        if kind == "tool_call":
            calls.append(
                build_call(
                    data.get("tool_call_id") or derive_id(name, str(number)), data.get("name"), data["arguments"]
                )
            )
        elif kind == "tool_result":
            is_error = bool(data.get("exception"))
            yield build_result(
                f"{name}/{number}", data.get("tool_call_id"), data.get("name"), data.get("output"), at, is_error
            )
        elif kind == "attachment":
            parts.append(attachments.read_part(str(data["attachment"].get("id"))))
        elif kind == "reasoning":
            thoughts.append(text or str(data.get("text") or ""))
        else:
            parts.append(text if text is not None else _join_fragments(db, data))
    notes[THOUGHTS] += len(thoughts)
    converted = build_message(name, role, parts, calls, at, model=model, thoughts=thoughts)
    if converted is not None:
        yield converted
    elif role != "tool":
        notes[EMPTY] += 1


def _join_fragments(db: Database, data: Mapping[str, Any]) -> str:
    """Join a text that is stored as a list of literal texts and references to fragments."""
    texts = [
        converted["literal"]
        if "literal" in converted
        else db.execute("SELECT content FROM fragments WHERE id = ?", (converted["fragment"],)).get or ""
        for converted in data.get("text_ref") or ()
    ]
    return "".join(texts)

"""Import the log of the command-line tool `llm` (`logs.db`).

Since about version 0.32, the log has messages that consist of parts (`messages`, `parts`) and name their predecessors,
and threads that end with a message (`threads`). Earlier versions stored a row for each prompt and response
(`responses`), with tool calls and results in separate tables. A file may have both layouts. The text of fragments is
inserted where they were used, and images are imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import apsw

from longtalk._util import json_bytes
from longtalk.stores.sqlite.database import Database
from longtalk.transfer.importers.llm_legacy import conversation
from longtalk.transfer.importers.llm_messages import THOUGHTS, TOOL, Attachments, call, result, said
from longtalk.transfer.importers.tree import EMPTY, Piece, Source, as_text, behind, found, moment, short, unreadable
from longtalk.transfer.load import ParsedConversation

# A missing table makes only the conversations that need it unreadable.
WRONG = (ValueError, TypeError, KeyError, AttributeError, apsw.SQLError)


def tables_of_threads(tables: set[str]) -> bool:
    """Return True if these tables include those of the current layout, which has threads."""
    return {"threads", "messages", "parts", "turns"} <= tables


def is_one(tables: set[str]) -> bool:
    """Return True if these are the tables of an `llm` log, in either layout."""
    return tables_of_threads(tables) or {"conversations", "responses"} <= tables


def count(db: Database, tables: set[str]) -> int:
    """Return the number of conversations in the log, in both layouts together."""
    return len(_named(db, tables)) + len(_old(db, tables))


def read(db: Database, tables: set[str]) -> Iterator[ParsedConversation]:
    """Yield the conversations in both layouts, those in the current layout first."""
    for name, title, tip in _named(db, tables):
        try:
            yield _thread(db, as_text(name), as_text(title), None if tip is None else as_text(tip))
        except WRONG as problem:
            yield unreadable(name, problem)
    for name, title in _old(db, tables):
        try:
            yield conversation(db, tables, as_text(name), as_text(title))
        except WRONG as problem:
            yield unreadable(name, problem)


_NAMES = "CAST(id AS BLOB), CAST(name AS BLOB)"
"""The id and name columns as bytes, so that text that is not UTF-8 makes only its own conversation unreadable."""


def _named(db: Database, tables: set[str]) -> list[Any]:
    rows = f"SELECT {_NAMES}, CAST(tip_message_hash AS BLOB) FROM threads ORDER BY id"  # noqa: S608
    return list(db.execute(rows).fetchall()) if tables_of_threads(tables) else []


def _old(db: Database, tables: set[str]) -> list[Any]:
    if not {"conversations", "responses"} <= tables:
        return []
    beside = " WHERE id NOT IN (SELECT id FROM threads)" if tables_of_threads(tables) else ""
    return list(db.execute(f"SELECT {_NAMES} FROM conversations{beside} ORDER BY id").fetchall())  # noqa: S608


def _thread(db: Database, name: str, title: str, tip: str | None) -> ParsedConversation:
    notes: Counter[str] = Counter()
    pictures = Attachments(db, notes)
    turns = db.execute(
        "SELECT parent_message_hash, tip_message_hash, model, datetime_utc FROM turns WHERE thread_id = ? ORDER BY id",
        (name,),
    ).fetchall()
    # A user's message has the time at which its turn began; an answer also has the model of its turn.
    times = {hash_: moment(at) for before, tip, _, at in reversed(turns) for hash_ in (before, tip)}
    models = {tip: str(model or "") for _, tip, model, _ in turns}
    pieces: list[Piece] = []
    at = min((time for time in times.values() if time), default=0)
    for hash_, role in _up(db, tip):
        at = times.get(hash_) or at
        pieces += _pieces(db, hash_, role, at, models.get(hash_, ""), pictures, notes)
    return found(Source(tool=TOOL, id=name, title=title, ends=[behind(None, pieces)]), notes)


def _up(db: Database, tip: str | None) -> list[tuple[str, str]]:
    """Return the hash and role of each message on the path from the first message to `tip`."""
    path: dict[str, str] = {}
    while tip is not None and tip not in path:
        row = db.execute("SELECT parent_hash, role FROM messages WHERE hash = ?", (tip,)).fetchone()
        if row is None:
            raise ValueError(f"the message {tip} is missing")
        path[tip], tip = str(row[1]), row[0]
    return list(reversed(path.items()))


def _pieces(
    db: Database, name: str, role: str, at: int, model: str, pictures: Attachments, notes: Counter[str]
) -> Iterator[Piece]:
    """Yield a `Piece` for each entry that a message becomes; each tool result becomes an entry of its own."""
    parts: list[Any] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    rows = db.execute("SELECT type, text, payload FROM parts WHERE message_hash = ? ORDER BY position", (name,))
    for number, (kind, text, payload) in enumerate(rows.fetchall()):
        held = json_bytes.value(payload.encode()) if payload else {}
        if kind == "tool_call":
            calls.append(
                call(held.get("tool_call_id") or short(name, str(number)), held.get("name"), held["arguments"])
            )
        elif kind == "tool_result":
            wrong = bool(held.get("exception"))
            yield result(f"{name}/{number}", held.get("tool_call_id"), held.get("name"), held.get("output"), at, wrong)
        elif kind == "attachment":
            parts.append(pictures.part(str(held["attachment"].get("id"))))
        elif kind == "reasoning":
            thoughts.append(text or str(held.get("text") or ""))
        else:
            parts.append(text if text is not None else _restored(db, held))
    notes[THOUGHTS] += len(thoughts)
    piece = said(name, role, parts, calls, at, model=model, thoughts=thoughts)
    if piece is not None:
        yield piece
    elif role != "tool":
        notes[EMPTY] += 1


def _restored(db: Database, held: Mapping[str, Any]) -> str:
    """Return a text that is stored as a list of literal texts and references to fragments."""
    texts = [
        piece["literal"]
        if "literal" in piece
        else db.execute("SELECT content FROM fragments WHERE id = ?", (piece["fragment"],)).get or ""
        for piece in held.get("text_ref") or ()
    ]
    return "".join(texts)

"""The log of `llm`, the command line tool (`logs.db`).

Since 0.32 or so it has messages with their parts, each naming the one before it, and threads that end with one of them
(`threads`). Before, it had a row for each prompt with its response (`responses`), and calls of tools and their results
in tables of their own. A file may have both. Fragments are put where they were, and pictures come along as they are.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw

from longtalk import _json
from longtalk.imports.notes import note
from longtalk.imports.tree import EMPTY, Piece, Source, as_text, behind, found, moment, short, unreadable
from longtalk.intake import Found
from longtalk.pack import Entry
from longtalk.stores.sqlite_file import Database
from longtalk.wires.base import system
from longtalk.wires.openai_chat import WIRE

TOOL = "llm"
FILES = note("attachments are only names in this log", "attachment is only a name in this log")
THOUGHTS = note(
    "thoughts of the model are kept beside its answers, and not sent",
    "thought of the model is kept beside its answer, and not sent",
)
# A table that is named and not there is wrong with the conversation that names it.
WRONG = (ValueError, TypeError, KeyError, AttributeError, apsw.SQLError)


class Attachments:
    """Pictures, recordings and files that messages have."""

    def __init__(self, db: Database, notes: Counter[str]) -> None:
        self._db = db
        self._notes = notes

    def part(self, name: str) -> Any:
        """An attachment as a part of a message; a word about it when it is not there."""
        row = self._db.execute("SELECT type, path, url, content FROM attachments WHERE id = ?", (name,)).fetchone()
        kind, path, url, content = row or ("", name, None, None)
        if str(kind).startswith("image/") and (content or url):
            address = f"data:{kind};base64,{base64.b64encode(content).decode()}" if content else url
            return {"type": "image_url", "image_url": {"url": address}}
        self._notes[FILES] += 1
        return f"[{url or str(path or kind or 'attachment').rpartition('/')[2]}, not in the log]"


def tables_of_threads(tables: set[str]) -> bool:
    return {"threads", "messages", "parts", "turns"} <= tables


def is_one(tables: set[str]) -> bool:
    return tables_of_threads(tables) or {"conversations", "responses"} <= tables


def count(db: Database, tables: set[str]) -> int:
    return len(_named(db, tables)) + len(_old(db, tables))


def read(db: Database, tables: set[str]) -> Iterator[Found]:
    """All conversations."""
    from longtalk.imports.llm_old import conversation

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
"""As bytes: a text that is not UTF-8 is wrong with its conversation alone."""


def _named(db: Database, tables: set[str]) -> list[Any]:
    rows = f"SELECT {_NAMES}, CAST(tip_message_hash AS BLOB) FROM threads ORDER BY id"  # noqa: S608
    return list(db.execute(rows).fetchall()) if tables_of_threads(tables) else []


def _old(db: Database, tables: set[str]) -> list[Any]:
    if not {"conversations", "responses"} <= tables:
        return []
    beside = " WHERE id NOT IN (SELECT id FROM threads)" if tables_of_threads(tables) else ""
    return list(db.execute(f"SELECT {_NAMES} FROM conversations{beside} ORDER BY id").fetchall())  # noqa: S608


def _thread(db: Database, name: str, title: str, tip: str | None) -> Found:
    notes: Counter[str] = Counter()
    pictures = Attachments(db, notes)
    turns = db.execute(
        "SELECT parent_message_hash, tip_message_hash, model, datetime_utc FROM turns WHERE thread_id = ? ORDER BY id",
        (name,),
    ).fetchall()
    # What was asked came when the turn began; an answer names its model.
    times = {hash_: moment(at) for before, tip, _, at in reversed(turns) for hash_ in (before, tip)}
    models = {tip: str(model or "") for _, tip, model, _ in turns}
    pieces: list[Piece] = []
    at = min((time for time in times.values() if time), default=0)
    for hash_, role in _up(db, tip):
        at = times.get(hash_) or at
        pieces += _pieces(db, hash_, role, at, models.get(hash_, ""), pictures, notes)
    return found(Source(tool=TOOL, id=name, title=title, ends=[behind(None, pieces)]), notes)


def _up(db: Database, tip: str | None) -> list[tuple[str, str]]:
    """The messages from the first one to this."""
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
    """A message as entries: each result of a tool is one of its own."""
    parts: list[Any] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    rows = db.execute("SELECT type, text, payload FROM parts WHERE message_hash = ? ORDER BY position", (name,))
    for number, (kind, text, payload) in enumerate(rows.fetchall()):
        held = _json.value(payload.encode()) if payload else {}
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
    """A text that is told as literal pieces and fragments."""
    texts = [
        piece["literal"]
        if "literal" in piece
        else db.execute("SELECT content FROM fragments WHERE id = ?", (piece["fragment"],)).get or ""
        for piece in held.get("text_ref") or ()
    ]
    return "".join(texts)


# What both forms have in common


def call(id: Any, name: Any, arguments: Any) -> dict[str, Any]:  # noqa: A002
    given = arguments if isinstance(arguments, str) else _json.encode(arguments or {}).decode()
    return {"id": str(id), "type": "function", "function": {"name": str(name or "tool"), "arguments": given}}


def result(key: str, id: Any, name: Any, output: Any, at: int, wrong: bool) -> Piece:  # noqa: A002
    native = WIRE.result(str(id or "-"), str(output or ""), error=wrong)
    entry = Entry(role="tool", wire=WIRE.name, native=native, at=at, mark="error" if wrong else "")
    return Piece(key=key, entry=entry, tool=str(name or ""))


def said(
    key: str,
    role: str,
    parts: Sequence[Any],
    calls: Sequence[dict[str, Any]],
    at: int,
    *,
    model: str = "",
    thoughts: Sequence[str] = (),
) -> Piece | None:
    """A message; None when it says nothing."""
    parts = [part for part in parts if part]
    text = "\n".join(part for part in parts if isinstance(part, str))
    if not calls and not text.strip() and all(isinstance(part, str) for part in parts):
        return None
    meta = {"thoughts": list(thoughts)} if thoughts else {}
    if role == "system":
        return Piece(key=key, entry=system(text, at=at))
    if role == "assistant":
        message = {"role": role, "content": text or None, **({"tool_calls": list(calls)} if calls else {})}
        native = _json.encode(message)
    else:
        role, native = "user", WIRE.user(text if all(isinstance(part, str) for part in parts) else parts)
    return Piece(key=key, entry=Entry(role=role, wire=WIRE.name, native=native, at=at), model=model, meta=meta)

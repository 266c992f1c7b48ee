"""Read the earlier layout of the `llm` log: a row for each prompt and response, with tool calls in separate tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from longtalk.stores.sqlite.database import Database
from longtalk.transfer.importers.llm_messages import THOUGHTS, TOOL, Attachments, call, result, said
from longtalk.transfer.importers.tree import EMPTY, Piece, Source, behind, found, moment, short
from longtalk.transfer.load import ParsedConversation


def conversation(db: Database, tables: set[str], name: str, title: str) -> ParsedConversation:
    """Return a conversation stored in the earlier layout. Tables that old versions of `llm` lack count as empty."""
    notes: Counter[str] = Counter()
    rows = db.execute(
        "SELECT id, model, prompt, system, response, datetime_utc, duration_ms FROM responses"
        " WHERE conversation_id = ? ORDER BY datetime_utc, id",
        (name,),
    ).fetchall()
    reading = _Reading(db, tables, notes)
    pieces = [piece for row in rows for piece in reading.response(*row)]
    return found(Source(tool=TOOL, id=name, title=title, ends=[behind(None, pieces)]), notes)


class _Reading:
    def __init__(self, db: Database, tables: set[str], notes: Counter[str]) -> None:
        self._db = db
        self._tables = tables
        self._notes = notes
        self._pictures = Attachments(db, notes)
        self._system = ""
        self._open: list[tuple[str, str]] = []
        """The tool calls of the previous response that have no result yet, each with the name of its tool."""

    def response(
        self,
        id: str,  # noqa: A002
        model: str,
        prompt: str,
        system: str,
        answer: str,
        when: Any,
        took: Any,
    ) -> Iterator[Piece]:
        began = moment(when)
        told = "\n\n".join([*self._fragments("system_fragments", id), *([system] if system else [])])
        if told and told != self._system:
            self._system = told
            yield from self._kept(said(f"{id}/system", "system", [told], [], began))
        yield from self._results(id, began)
        parts = ["\n".join([*self._fragments("prompt_fragments", id), *([prompt] if prompt else [])])]
        parts += [self._pictures.part(name) for (name,) in self._rows("prompt_attachments", "attachment_id", id)]
        asked = said(f"{id}/prompt", "user", parts, [], began)
        if asked:
            yield asked
        thoughts = self._thoughts(id)
        self._notes[THOUGHTS] += len(thoughts)
        ended = began + (took if isinstance(took, int) and 0 <= took < 2**40 else 0)
        yield from self._kept(said(id, "assistant", [answer], self._calls(id), ended, model=model, thoughts=thoughts))

    def _kept(self, piece: Piece | None) -> Iterator[Piece]:
        self._notes[EMPTY] += piece is None
        if piece:
            yield piece

    def _calls(self, id: str) -> list[dict[str, Any]]:  # noqa: A002
        rows = self._rows("tool_calls", "id, name, arguments, tool_call_id", id)
        made = [(str(call_id or short(id, str(number))), str(name), given) for number, name, given, call_id in rows]
        self._open = [(call_id, name) for call_id, name, _ in made]
        return [call(*each) for each in made]

    def _results(self, id: str, at: int) -> Iterator[Piece]:  # noqa: A002
        columns = "id, name, output, tool_call_id" + (", exception" if self._has_exceptions() else ", NULL")
        for number, name, output, call_id, wrong in self._rows("tool_results", columns, id):
            if not call_id:
                # A result without a call id answers the first open call of its tool.
                call_id = next((each for each, tool in self._open if tool == name), None)
            self._open = [each for each in self._open if each[0] != call_id]
            yield result(f"{id}/result/{number}", call_id, name, output, at, bool(wrong))

    def _has_exceptions(self) -> bool:
        return any(row[1] == "exception" for row in self._db.execute("PRAGMA table_info(tool_results)"))

    def _thoughts(self, id: str) -> list[str]:  # noqa: A002
        columns = {row[1] for row in self._db.execute("PRAGMA table_info(responses)")}
        sql = "SELECT reasoning FROM responses WHERE id = ?"
        thought = self._db.execute(sql, (id,)).get if "reasoning" in columns else None
        return [thought] if thought else []

    def _fragments(self, table: str, id: str) -> list[str]:  # noqa: A002
        if not {table, "fragments"} <= self._tables:
            return []
        sql = (
            f'SELECT content FROM {table} JOIN fragments f ON f.id = fragment_id WHERE response_id = ? ORDER BY "order"'  # noqa: S608
        )
        return [content for (content,) in self._db.execute(sql, (id,)).fetchall()]

    def _rows(self, table: str, columns: str, id: str) -> list[Any]:  # noqa: A002
        if table not in self._tables:
            return []
        return list(self._db.execute(f"SELECT {columns} FROM {table} WHERE response_id = ? ORDER BY rowid", (id,)))  # noqa: S608

"""Read the earlier layout of the `llm` log: a row for each prompt and response, with tool calls in separate tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from longtalk.stores.sqlite.database import Database
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
    derive_id,
    parse_time,
)
from longtalk.transfer.limits import Budget
from longtalk.transfer.load import ParsedConversation


def read_conversation(db: Database, tables: set[str], name: str, title: str, budget: Budget) -> ParsedConversation:
    """Return a conversation in the earlier layout. Tables that old versions of `llm` did not have count as empty."""
    notes: Counter[str] = Counter()
    rows = db.execute(
        "SELECT id, model, prompt, system, response, datetime_utc, duration_ms FROM responses"
        " WHERE conversation_id = ? ORDER BY datetime_utc, id",
        (name,),
    ).fetchall()
    reader = _Reader(db, tables, notes)
    messages = [converted for row in rows for converted in reader.convert_response(*row)]
    source = ToolConversation(tool=TOOL, id=name, title=title, ends=[append_messages(None, messages)])
    return convert(source, notes, budget)


class _Reader:
    """A reader of the responses of one conversation, in order."""

    def __init__(self, db: Database, tables: set[str], notes: Counter[str]) -> None:
        self._db = db
        self._tables = tables
        self._notes = notes
        self._attachments = Attachments(db, notes)
        self._system = ""
        self._open: list[tuple[str, str]] = []
        """The tool calls of the previous response that have no result yet, each with the name of its tool."""

    def convert_response(
        self,
        id: str,  # noqa: A002
        model: str,
        prompt: str,
        system: str,
        answer: str,
        when: Any,
        duration: Any,
    ) -> Iterator[ConvertedMessage]:
        """Yield the messages of one row: the system text if it has changed, tool results, the prompt and the answer."""
        started = parse_time(when)
        system_text = "\n\n".join([*self._read_fragments("system_fragments", id), *([system] if system else [])])
        if system_text and system_text != self._system:
            self._system = system_text
            yield from self._skip_if_empty(build_message(f"{id}/system", "system", [system_text], [], started))
        yield from self._read_results(id, started)
        parts = ["\n".join([*self._read_fragments("prompt_fragments", id), *([prompt] if prompt else [])])]
        parts += [
            self._attachments.read_part(name) for (name,) in self._select("prompt_attachments", "attachment_id", id)
        ]
        question = build_message(f"{id}/prompt", "user", parts, [], started)
        if question:
            yield question
        thoughts = self._read_thoughts(id)
        self._notes[THOUGHTS] += len(thoughts)
        ended = started + (duration if isinstance(duration, int) and 0 <= duration < 2**40 else 0)
        yield from self._skip_if_empty(
            build_message(id, "assistant", [answer], self._read_calls(id), ended, model=model, thoughts=thoughts)
        )

    def _skip_if_empty(self, converted: ConvertedMessage | None) -> Iterator[ConvertedMessage]:
        """Yield the message. If it is None, yield nothing and count an empty message in the notes."""
        self._notes[EMPTY] += converted is None
        if converted:
            yield converted

    def _read_calls(self, id: str) -> list[dict[str, Any]]:  # noqa: A002
        rows = self._select("tool_calls", "id, name, arguments, tool_call_id", id)
        calls = [
            (str(call_id or derive_id(id, str(number))), str(name), given) for number, name, given, call_id in rows
        ]
        self._open = [(call_id, name) for call_id, name, _ in calls]
        return [build_call(*each) for each in calls]

    def _read_results(self, id: str, at: int) -> Iterator[ConvertedMessage]:  # noqa: A002
        columns = "id, name, output, tool_call_id" + (", exception" if self._has_exceptions() else ", NULL")
        for number, name, output, call_id, is_error in self._select("tool_results", columns, id):
            if not call_id:
                # A result without a call id answers the first open call of its tool.
                call_id = next((each for each, tool in self._open if tool == name), None)
            self._open = [each for each in self._open if each[0] != call_id]
            yield build_result(f"{id}/result/{number}", call_id, name, output, at, bool(is_error))

    def _has_exceptions(self) -> bool:
        return any(row[1] == "exception" for row in self._db.execute("PRAGMA table_info(tool_results)"))

    def _read_thoughts(self, id: str) -> list[str]:  # noqa: A002
        columns = {row[1] for row in self._db.execute("PRAGMA table_info(responses)")}
        sql = "SELECT reasoning FROM responses WHERE id = ?"
        thought = self._db.execute(sql, (id,)).get if "reasoning" in columns else None
        return [thought] if thought else []

    def _read_fragments(self, table: str, id: str) -> list[str]:  # noqa: A002
        if not {table, "fragments"} <= self._tables:
            return []
        sql = (
            f'SELECT content FROM {table} JOIN fragments f ON f.id = fragment_id WHERE response_id = ? ORDER BY "order"'  # noqa: S608
        )
        return [content for (content,) in self._db.execute(sql, (id,)).fetchall()]

    def _select(self, table: str, columns: str, id: str) -> list[Any]:  # noqa: A002
        if table not in self._tables:
            return []
        return list(self._db.execute(f"SELECT {columns} FROM {table} WHERE response_id = ? ORDER BY rowid", (id,)))  # noqa: S608

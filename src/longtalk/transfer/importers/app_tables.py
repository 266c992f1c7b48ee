"""Import the conversations of an app from its own tables, as a `TableMapping` describes them.

A content that is text stays text, and a content that is a JSON array of parts stays that, in OpenAI's chat format or in
Anthropic's. All roles are checked before anything is imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from longtalk._util import json_bytes
from longtalk._util.suggest import suggest
from longtalk.errors import InputError
from longtalk.memory.brief.apply import apply
from longtalk.memory.brief.lines import BriefContent
from longtalk.memory.brief.operations import Operation
from longtalk.memory.brief.record import KIND, BriefRecord
from longtalk.memory.brief.schema import GENERAL, Brief, Schema
from longtalk.stores.base import PlacedRecord
from longtalk.tokens import Estimator
from longtalk.transcript.pack import Entry
from longtalk.transcript.transcript import Record
from longtalk.transfer.chat_messages import is_anthropic_part, parse_chat_message
from longtalk.transfer.conversation_export import ConversationExport
from longtalk.transfer.importers.app_rows import AppRows, Row
from longtalk.transfer.importers.mapping import TableMapping
from longtalk.transfer.importers.notes import register_note
from longtalk.transfer.importers.tree import (
    EMPTY,
    NO_MESSAGES,
    ConvertedMessage,
    ToolConversation,
    append_messages,
    convert,
    parse_time,
    report_malformed,
)
from longtalk.transfer.limits import Budget
from longtalk.transfer.load import ParsedConversation
from longtalk.transfer.native_messages import split_messages
from longtalk.wires.anthropic.wire import WIRE as ANTHROPIC
from longtalk.wires.neutral import system
from longtalk.wires.openai_chat.wire import WIRE as CHAT
from longtalk.wires.protocol import Wire

TOOL = "app"
SAME_TIME = register_note(
    "messages have the same time as the one before and no id: they are in the order in which the database stores them",
    "message has the same time as the one before and no id: it is in the order in which the database stores it",
)
_MILLISECONDS = 100_000_000_000
"""A number from this one on is a time in milliseconds, not in seconds."""
_ERRORS = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


class _Chat(NamedTuple):
    """The row of a conversation."""

    owner: str | None = None
    title: str = ""
    created: int = 0
    metadata: Mapping[str, Any] = {}
    rows: int = 1


class _Message(NamedTuple):
    """The row of a message, with its number in the conversation."""

    number: int
    key: str
    role: str
    content: Any
    at: int
    model: str
    tool_calls: Any
    tool_call_id: str
    metadata: Mapping[str, Any]


def check_tables(rows: AppRows, mapping: TableMapping) -> None:
    """Raise `InputError` unless the tables, columns and roles of the mapping agree with the database."""
    for part, table in (
        ("conversations", mapping.conversations),
        ("messages", mapping.messages),
        ("briefs", mapping.briefs),
    ):
        if table is None:
            continue
        columns = rows.list_columns(table.table)
        if not columns:
            names = rows.list_tables()
            raise InputError(
                f"The database has no table {table.table!r}, which the mapping names under [{part}]."
                f"{suggest(table.table, names)} Its tables: {', '.join(names[:20]) or 'none'}."
            )
        for key, value in msgspec.structs.asdict(table).items():
            named = value if key == "metadata" else [value]
            for column in named if key not in ("table", "roles", "field") else ():
                if column and column not in columns:
                    raise InputError(
                        f"The table {table.table!r} has no column {column!r}, which the mapping names as `{key}` under "
                        f"[{part}].{suggest(column, columns)} Its columns: {', '.join(columns)}."
                    )
    if mapping.briefs is not None and GENERAL.find(mapping.briefs.field) is None:
        fields = ", ".join(field.name for field in GENERAL.fields)
        raise InputError(f"A brief has no field {mapping.briefs.field!r}. Its fields: {fields}.")
    found = rows.count(mapping.messages.table, mapping.messages.role)
    unknown = {str(role or ""): count for role, count in found.items() if mapping.find_role(str(role or "")) is None}
    if unknown:
        roles = ", ".join(f"{role!r} ({count:,})" for role, count in sorted(unknown.items())[:20])
        example = sorted(unknown)[0]
        raise InputError(
            f"The column {mapping.messages.role!r} of {mapping.messages.table!r} has roles whose meaning is unknown: "
            f"{roles}. Nothing was imported. Say what they mean in the mapping: under [messages.roles], add lines such "
            f'as "{example}" = "assistant" (or user, system, tool).'
        )


def count(rows: AppRows, mapping: TableMapping) -> int:
    """Return the number of conversations."""
    table, column = mapping.messages.table, mapping.messages.conversation
    if mapping.conversations is not None:
        table, column = mapping.conversations.table, mapping.conversations.id
    return len(rows.count(table, column))


def read(rows: AppRows, mapping: TableMapping, budget: Budget) -> Iterator[ParsedConversation]:
    """Yield the conversation of each group of messages, then the conversations without messages."""
    chats, briefs = _read_chats(rows, mapping), _read_briefs(rows, mapping)
    seen: set[str] = set()
    for name, group in groupby(_read_rows(rows, mapping), lambda row: None if row[0] is None else str(row[0])):
        found = list(group)
        if name is None:
            why = f"{len(found):,} of its rows name no conversation"
            yield ParsedConversation(ConversationExport(id=f"({mapping.messages.table})"), problem=why)
            continue
        seen.add(name)
        chat = chats.get(name) if mapping.conversations else _Chat()
        if chat is None or chat.rows > 1:
            rows_found = "no row" if chat is None else f"{chat.rows:,} rows"
            why = f"the table {mapping.conversations.table if mapping.conversations else ''!r} has {rows_found} for it"
            yield ParsedConversation(ConversationExport(id=name), problem=why)
            continue
        try:
            parsed = _convert(name, chat, found, briefs.get(name, ""), mapping, budget)
        except _ERRORS as problem:
            parsed = report_malformed(name, problem)
        yield msgspec.structs.replace(parsed, owner=chat.owner)
    for name, chat in chats.items():
        if name not in seen:
            yield ParsedConversation(ConversationExport(id=name), problem=NO_MESSAGES, owner=chat.owner)


def _read_chats(rows: AppRows, mapping: TableMapping) -> dict[str, _Chat]:
    table = mapping.conversations
    chats: dict[str, _Chat] = {}
    if table is None:
        return chats
    columns = (table.id, table.owner, table.title, table.created_at, *table.metadata)
    for id_, owner, title, created, *values in rows.read(table.table, columns):
        chats[str(id_)] = _Chat(
            owner=None if not table.owner else str("" if owner is None else owner),
            title=str(title or ""),
            created=_to_time(created),
            metadata=_to_metadata(table.metadata, values),
            rows=chats[str(id_)].rows + 1 if str(id_) in chats else 1,
        )
    return chats


def _read_briefs(rows: AppRows, mapping: TableMapping) -> dict[str, str]:
    briefs: dict[str, str] = {}
    if mapping.briefs is not None:
        for id_, text in rows.read(mapping.briefs.table, (mapping.briefs.conversation, mapping.briefs.text)):
            if text:
                written = text if isinstance(text, str) else json_bytes.encode(text).decode()
                briefs[str(id_)] = f"{briefs[str(id_)]}\n{written}" if str(id_) in briefs else written
    return briefs


def _read_rows(rows: AppRows, mapping: TableMapping) -> Iterator[Row]:
    table = mapping.messages
    columns = (
        *(table.conversation, table.id, table.role, table.content, table.created_at),
        *(table.model, table.tool_calls, table.tool_call_id, *table.metadata),
    )
    order = [column for column in (table.created_at, table.id) if column]
    return rows.read(table.table, columns, table.conversation, order)


def _convert(
    name: str, chat: _Chat, rows: Sequence[Row], brief: str, mapping: TableMapping, budget: Budget
) -> ParsedConversation:
    notes: Counter[str] = Counter()
    messages: list[_Message] = []
    before: Any = None
    for number, (_, key, role, content, created, model, calls, call_id, *values) in enumerate(rows, 1):
        notes[SAME_TIME] += created is not None and created == before and key is None
        before = created
        messages.append(
            _Message(
                number=number,
                key=str(number if key is None else key),
                role=mapping.find_role(str(role or "")) or "",
                content=_to_content(content),
                at=_to_time(created),
                model=str(model or ""),
                tool_calls=_to_content(calls),
                tool_call_id=str(call_id or ""),
                metadata=_to_metadata(mapping.messages.metadata, values),
            )
        )
    wire = ANTHROPIC if any(_is_anthropic(message.content) for message in messages) else CHAT
    converted = [each for message in messages for each in _convert_message(message, wire, notes)]
    source = ToolConversation(
        tool=TOOL,
        id=name,
        title=chat.title,
        created=chat.created,
        meta={"brief": brief} if brief else {},
        own=chat.metadata,
        ends=[append_messages(None, converted)],
    )
    parsed = convert(source, notes, budget)
    if not brief or not mapping.briefs or parsed.problem:
        return parsed
    return msgspec.structs.replace(parsed, export=_with_brief(parsed.export, brief, mapping.briefs.field))


def _convert_message(message: _Message, wire: Wire, notes: Counter[str]) -> Iterator[ConvertedMessage]:
    """Yield the entries of a message: one, or several for tool results in Anthropic's format."""
    content, role = message.content, message.role
    if content in (None, "", []) and not message.tool_calls:
        notes[EMPTY] += 1
        return
    entries: list[Entry] = []
    if role == "system":
        entries.append(system(content if isinstance(content, str) else _join_texts(content), at=message.at))
    elif role == "tool" and wire is CHAT:
        text = content if isinstance(content, str) else json_bytes.encode(content).decode()
        native = CHAT.write_result(message.tool_call_id or "-", text, error=False)
        entries.append(Entry(role="tool", wire=CHAT.name, native=native, at=message.at))
    else:
        fields = {"role": role, "content": content or None}
        native = json_bytes.encode({**fields, "tool_calls": message.tool_calls} if message.tool_calls else fields)
        for each in split_messages([native], wire, first=message.number) if wire is ANTHROPIC else ():
            mark = each.mark
            entries.append(Entry(role=each.role, wire=wire.name, native=each.native, at=message.at, mark=mark))
        if wire is CHAT:
            entry, _ = parse_chat_message(native, message.number)
            entries.append(msgspec.structs.replace(entry, at=message.at))
    for index, entry in enumerate(entries):
        key = message.key if len(entries) == 1 else f"{message.key}/{index}"
        yield ConvertedMessage(key=key, entry=entry, model=message.model, own=message.metadata)


def _join_texts(content: Any) -> str:
    texts: list[Any] = [part.get("text") for part in content] if isinstance(content, list) else []
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a system message has content that is not text")
    return "\n\n".join(texts)


def _to_content(value: Any) -> Any:
    """Return a value, or the list that it has as JSON if it is a text with a JSON array of parts with types."""
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str) and value.lstrip()[:2].rstrip() in ("[", "[{"):
        try:
            parts = json_bytes.value(value.encode())
        except ValueError:
            return value
        return parts if isinstance(parts, list) and parts and all(map(_is_part, parts)) else value
    if value is None or isinstance(value, str | list):
        return value
    raise ValueError(f"a content is {json_bytes.encode(value)[:40].decode()!r}, neither text nor a list of parts")


def _is_part(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def _is_anthropic(content: Any) -> bool:
    return isinstance(content, list) and any(_is_part(part) and is_anthropic_part(part) for part in content)


def _to_time(value: Any) -> int:
    """Return a time as milliseconds since 1970, given ISO 8601 text, seconds or milliseconds; 0 if it is not a time."""
    if isinstance(value, str) and len(value) == 8 and value.isdigit() and (day := parse_time(value)):
        return day  # A day in the basic form of ISO 8601, such as 20260101.
    try:
        number = float(value)
    except OverflowError:
        return 0
    except (TypeError, ValueError):
        return parse_time(value)
    return parse_time(number / 1000 if number >= _MILLISECONDS else number)


def _to_metadata(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for name, value in zip(names, values, strict=True)
        if value is not None
    }


def _with_brief(export: ConversationExport, brief: str, field: str) -> ConversationExport:
    """Return the export with each line of a text as a line of the brief, all of them as if the app had written them."""
    texts = [line.strip(" \t-*•") for line in brief.splitlines()]
    # The brief of the app is kept whole: the policy of the next turn sends what fits its budget.
    wide = Schema(tuple(_widen(each, each.name == field) for each in GENERAL.fields))
    operation = Operation.add(field, *filter(None, texts))
    content = apply(BriefContent(), [operation], Brief(20_000, wide), Estimator(), at=export.created or 1).content
    main = export.branches[0]
    record = Record(KIND, main.entries[0].id, export.created, json_bytes.encode(BriefRecord(content=content)))
    main = msgspec.structs.replace(main, records=(PlacedRecord(record, 0),))
    return msgspec.structs.replace(export, branches=(main, *export.branches[1:]))


def _widen(field: Any, chosen: bool) -> Any:
    if not chosen or field.kind == "text":
        return field
    return msgspec.structs.replace(field, cap=400, item=2_000)

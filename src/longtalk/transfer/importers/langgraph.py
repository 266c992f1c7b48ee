"""Import LangGraph checkpoints: the `messages` in the newest state of each thread.

`SqliteSaver` stores the messages in each checkpoint, `PostgresSaver` in the table `checkpoint_blobs`.

Checkpoints are encoded as msgpack, with extensions that name Python classes. The importer creates no objects of these
classes and unpickles nothing: it reads the plain values in an extension, and recognizes messages by their fields.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from longtalk._util import json_bytes
from longtalk.stores.sqlite.database import Database
from longtalk.transcript.pack import Entry
from longtalk.transfer.importers.notes import register_note
from longtalk.transfer.importers.server_tables import ServerTables
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
from longtalk.wires.neutral import system
from longtalk.wires.openai_chat.wire import WIRE

TOOL = "langgraph"
TABLES = {"checkpoints", "writes"}
POSTGRES_TABLES = {"checkpoints", "checkpoint_blobs"}
BLOCKS = register_note(
    "content blocks that are neither text nor images were kept as metadata of their messages and are not sent",
    "content block that is neither text nor an image was kept as metadata of its message and is not sent",
)
ARTIFACTS = register_note("tool artifacts were not imported", "tool artifact was not imported")
_ROLES = {"human": "user", "HumanMessageChunk": "user", "ai": "assistant", "AIMessageChunk": "assistant"}
_DELTA = 7
_ERRORS = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
_Messages: TypeAlias = "tuple[int, msgspec.Raw | None]"
"""The time of a checkpoint and its list of messages, encoded as msgpack; None if it has no messages."""


class _State(msgspec.Struct):
    channel_values: dict[str, msgspec.Raw] = {}
    ts: str = ""


class _Object(msgspec.Struct):
    """The plain values in a msgpack extension, from which LangGraph would build an object."""

    code: int
    value: Any


def _extension(code: int, data: memoryview) -> Any:
    try:
        return _Object(code, msgspec.msgpack.decode(data, ext_hook=_extension))
    except ValueError:
        return _Object(code, None)


_state = msgspec.msgpack.Decoder(_State)
_raws = msgspec.msgpack.Decoder(list[msgspec.Raw])
_value = msgspec.msgpack.Decoder(ext_hook=_extension)


def count(db: Database) -> int:
    """Return the number of threads in the database."""
    number: int = db.execute("SELECT count(DISTINCT thread_id) FROM checkpoints WHERE checkpoint_ns = ''").get
    return number


def read(db: Database, budget: Budget) -> Iterator[ParsedConversation]:
    """Yield the conversation in each thread. Checkpoints of subgraphs are skipped, since they hold internal state."""
    threads = db.execute(
        "SELECT DISTINCT CAST(thread_id AS BLOB) FROM checkpoints WHERE checkpoint_ns = '' ORDER BY thread_id"
    )
    for (name,) in threads.fetchall():
        try:
            yield _convert_thread(_read_states(db, decode_text(name)), decode_text(name), budget)
        except _ERRORS as problem:
            yield report_malformed(name, problem)


def _read_states(db: Database, name: str) -> Iterator[_Messages]:
    rows = db.execute(
        "SELECT type, checkpoint FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = '' ORDER BY checkpoint_id",
        (name,),
    )
    for kind, data in rows:
        _check_kind(kind)
        state = _state.decode(data)
        yield parse_time(state.ts), state.channel_values.get("messages")


def count_postgres(db: ServerTables) -> int:
    """Return the number of threads in a database of `PostgresSaver`."""
    ((number,),) = db.select("SELECT count(DISTINCT thread_id) FROM checkpoints WHERE checkpoint_ns = ''")
    return int(number)


def read_postgres(db: ServerTables, budget: Budget) -> Iterator[ParsedConversation]:
    """Yield the conversation in each thread of a database of `PostgresSaver`, as `read` does."""
    for (name,) in db.select("SELECT DISTINCT thread_id FROM checkpoints WHERE checkpoint_ns = '' ORDER BY 1"):
        try:
            yield _convert_thread(_read_postgres_states(db, name), name, budget)
        except _ERRORS as problem:
            yield report_malformed(name, problem)


_POSTGRES_STATES = """
SELECT v.first, v.version, b.type, b.blob FROM (
    SELECT checkpoint -> 'channel_versions' ->> 'messages' AS version, min(checkpoint ->> 'ts') AS first,
        max(checkpoint_id) AS newest
    FROM checkpoints WHERE thread_id = %s AND checkpoint_ns = '' GROUP BY 1
) v LEFT JOIN checkpoint_blobs b
    ON b.thread_id = %s AND b.checkpoint_ns = '' AND b.channel = 'messages' AND b.version = v.version
ORDER BY v.newest
"""


def _read_postgres_states(db: ServerTables, name: str) -> Iterator[_Messages]:
    for ts, version, kind, blob in db.select(_POSTGRES_STATES, (name, name)):
        if version is None or kind == "empty":
            yield parse_time(ts), None
            continue
        if kind is None:
            raise ValueError(f"version {version} of its messages is missing in checkpoint_blobs")
        _check_kind(kind)
        yield parse_time(ts), msgspec.Raw(blob)


def _check_kind(kind: str) -> None:
    if kind != "msgpack":
        raise ValueError(f"its checkpoints are stored as {kind!r}; only msgpack is supported")


def _convert_thread(states: Iterable[_Messages], name: str, budget: Budget) -> ParsedConversation:
    """Return the conversation in a thread, given the messages of its checkpoints, oldest first.

    Each checkpoint holds all messages so far, so a message gets the time of the first checkpoint that contains it.
    """
    first_seen: dict[bytes, int] = {}
    raws: list[bytes] = []
    created = updated = 0
    for at, stored in states:
        created, updated = created or at, max(updated, at)
        raws = [] if stored is None else list(map(bytes, _decode_messages(stored)))
        for raw in raws:
            first_seen.setdefault(_hash(raw), at)
    notes: Counter[str] = Counter()
    messages = [
        converted
        for number, raw in enumerate(raws)
        if (converted := _convert_message(_value.decode(raw), name, number, first_seen[_hash(raw)], notes))
    ]
    ends = [append_messages(None, messages)]
    return convert(ToolConversation(tool=TOOL, id=name, created=created, updated=updated, ends=ends), notes, budget)


def _decode_messages(raw: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return _raws.decode(raw)
    except msgspec.DecodeError:
        value = _value.decode(raw)
        if isinstance(value, _Object) and value.code == _DELTA:
            raise ValueError("the messages are stored as changes (DeltaChannel) instead of a list") from None
        raise ValueError("the messages are not a list") from None


def _hash(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=16).digest()


def _convert_message(value: Any, thread: str, number: int, at: int, notes: Counter[str]) -> ConvertedMessage | None:
    """Convert a LangChain message to an entry; return None if it is empty. `number` is its index in the thread."""
    fields = _find_fields(value)
    kind = str(fields.get("type") or "")
    key = str(fields.get("id") or derive_id(thread, str(number)))
    text, parts, others = _split_content(fields.get("content"))
    calls = [call for call in fields.get("tool_calls") or () if isinstance(call, Mapping)]
    metadata = fields.get("response_metadata") or {}
    extra = {
        name: to_plain(fields[name]) for name in ("usage_metadata", "invalid_tool_calls", "name") if fields.get(name)
    }
    extra |= {"beside": to_plain(others)} if others else {}
    notes[BLOCKS] += len(others)
    notes[ARTIFACTS] += fields.get("artifact") is not None
    role = _ROLES.get(kind, kind)
    if role == "tool":
        call_id, is_error = str(fields.get("tool_call_id") or "-"), fields.get("status") == "error"
        native = WIRE.write_result(call_id, text, error=is_error)
        entry = Entry(role="tool", wire=WIRE.name, native=native, at=at, mark="error" if is_error else "")
        return ConvertedMessage(key=key, entry=entry, meta=extra, tool=str(fields.get("name") or ""))
    if not text.strip() and not calls and len(parts) < 1:
        notes[EMPTY] += 1
        return None
    if role in ("system", "developer"):
        return ConvertedMessage(key=key, entry=system(text, at=at), meta=extra)
    if role == "assistant":
        tool_calls = [_build_call(call, key, i) for i, call in enumerate(calls)]
        message = {"role": role, "content": text or None, **({"tool_calls": tool_calls} if tool_calls else {})}
        native = json_bytes.encode(message)
    elif role in ("user", "chat", "function", "generic"):
        role, native = "user", WIRE.write_user(parts if any(isinstance(part, dict) for part in parts) else text)
    else:
        raise ValueError(f"a message has the unknown type {kind!r}")
    model = str(metadata.get("model_name") or metadata.get("model") or "")
    return ConvertedMessage(
        key=key, entry=Entry(role=role, wire=WIRE.name, native=native, at=at), model=model, meta=extra
    )


def _find_fields(value: Any) -> Mapping[str, Any]:
    """Return the fields of a message, which may be stored as constructor arguments or as a plain mapping."""
    if isinstance(value, _Object) and isinstance(value.value, list):
        value = next((each for each in value.value if isinstance(each, Mapping)), None)
    if isinstance(value, Mapping) and "content" in value:
        role = {"user": "human", "assistant": "ai"}.get(str(value.get("role")), value.get("role"))
        return value if "type" in value else {**value, "type": role}
    raise ValueError("an item in the list of messages is not a LangChain message")


def _build_call(call: Mapping[str, Any], key: str, number: int) -> dict[str, Any]:
    arguments = json_bytes.encode(to_plain(call.get("args") or {})).decode()
    function = {"name": str(call.get("name") or "tool"), "arguments": arguments}
    return {"id": str(call.get("id") or derive_id(key, str(number), size=24)), "type": "function", "function": function}


def _split_content(content: Any) -> tuple[str, list[Any], list[Any]]:
    """Return a message's text, its text and image parts in order, and its other blocks except tool calls."""
    texts: list[str] = []
    parts: list[Any] = []
    others: list[Any] = []
    for block in [content] if isinstance(content, str) else content or ():
        if isinstance(block, str) or (isinstance(block, Mapping) and block.get("type") == "text"):
            texts.append(block if isinstance(block, str) else str(block.get("text") or ""))
            parts.append(texts[-1])
        elif isinstance(block, Mapping) and (address := _find_image_url(block)):
            parts.append({"type": "image_url", "image_url": {"url": address}})
        elif not (isinstance(block, Mapping) and block.get("type") in ("tool_use", "tool_call", "function_call")):
            others.append(block)
    return "\n".join(texts), [part for part in parts if part], others


def _find_image_url(block: Mapping[str, Any]) -> str:
    """Return the URL of an image block in any of LangChain's formats; empty if the block is not an image."""
    url = block.get("image_url")
    url = url.get("url") if isinstance(url, Mapping) else url
    if isinstance(url, str):
        return url
    if block.get("type") != "image":
        return ""
    source = block.get("source")
    image = source if isinstance(source, Mapping) else block
    data, media = image.get("base64") or image.get("data"), image.get("mime_type") or image.get("media_type")
    return f"data:{media or 'image/png'};base64,{data}" if isinstance(data, str) else str(image.get("url") or "")


def to_plain(value: Any) -> Any:
    """Convert a decoded value to one that JSON can represent."""
    if isinstance(value, _Object):
        return to_plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool) or value is None else repr(value)

"""Import Claude's data export: `conversations.json`, a list of conversations with their `chat_messages`.

A message has a text and, in newer exports, blocks: texts, thoughts, and tool calls with their results, often several
rounds in one message. The importer converts them to the format of Anthropic's API, with each result in a message of its
own. If messages name their parents, they form a tree, whose main branch is the path to the current message. Of
attachments, only the extracted text is imported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from longtalk._util import json_bytes
from longtalk.transcript.pack import Entry
from longtalk.transfer.importers.notes import describe_unknown_kind, format_kind, register_note
from longtalk.transfer.importers.tree import (
    EMPTY,
    UNKNOWN_AUTHORS,
    ConvertedMessage,
    MessageNode,
    ToolConversation,
    append_messages,
    convert,
    derive_id,
    parse_time,
    report_malformed,
)
from longtalk.transfer.limits import Budget
from longtalk.transfer.load import ParsedConversation
from longtalk.wires.anthropic.wire import WIRE

TOOL = "claude.ai"
THOUGHTS = register_note(
    "thinking blocks were kept as metadata of their answers and are not sent",
    "thinking block was kept as metadata of its answer and is not sent",
)
FILES = register_note(
    "files are missing: the export has only their names", "file is missing: the export has only its name"
)
BLOCKS = register_note(
    "content blocks of other types were kept as metadata of their messages and are not sent",
    "content block of another type was kept as metadata of its message and is not sent",
)
_THOUGHTS = ("thinking", "redacted_thinking")


def matches(first: Mapping[str, bytes]) -> bool:
    """Return True if these are the members of a conversation in Claude's export."""
    return first.get("chat_messages", b"")[:1] == b"["


def read(data: bytes, number: int, budget: Budget) -> ParsedConversation:
    """Read the conversation in a JSON object. If the data is not JSON, the result says so and names it by `number`."""
    name = f"conversation {number}"
    try:
        conversation = json_bytes.value(data)
        name = str(conversation.get("uuid") or derive_id(data.decode("utf-8", "replace")))
        return _convert(conversation, name, budget)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        return report_malformed(name, problem)


def _convert(conversation: Mapping[str, Any], name: str, budget: Budget) -> ParsedConversation:
    notes: Counter[str] = Counter()
    messages = {str(each.get("uuid") or number): each for number, each in enumerate(conversation["chat_messages"])}
    converted = {key: list(_convert_message(key, message, notes)) for key, message in messages.items()}
    parents = _find_parents(messages)
    with_children = set(parents.values())
    leaves = [key for key in messages if key not in with_children]
    current = conversation.get("current_leaf_message_uuid")
    last = current if current in messages else next(reversed(messages), None)
    if last is not None and last not in leaves:
        leaves.append(last)
    source = ToolConversation(
        tool=TOOL,
        id=name,
        title=str(conversation.get("name") or ""),
        created=parse_time(conversation.get("created_at")),
        updated=parse_time(conversation.get("updated_at")),
        meta={"summary": conversation["summary"]} if conversation.get("summary") else {},
        ends=_find_ends(parents, converted, leaves),
        main=leaves.index(last) if last is not None else 0,
    )
    return convert(source, notes, budget)


def _find_parents(messages: Mapping[str, Mapping[str, Any]]) -> dict[str, str | None]:
    """Return the parent that each message names; if no message names one, the parent is the previous message."""
    keys = list(messages)
    named_parents = {key: message.get("parent_message_uuid") for key, message in messages.items()}
    if any(parent in messages for parent in named_parents.values()):
        return {key: parent if parent in messages else None for key, parent in named_parents.items()}
    return dict(zip(keys, [None, *keys], strict=False))


def _find_ends(
    parents: Mapping[str, str | None], converted: Mapping[str, Sequence[ConvertedMessage]], leaves: Sequence[str]
) -> list[MessageNode | None]:
    """Return the last message on the path to each of these leaves; None for a path without messages."""
    nodes: dict[str | None, MessageNode | None] = {None: None}
    for leaf in leaves:
        path: dict[str, None] = {}
        at: str | None = leaf
        while at is not None and at not in path and at not in nodes:
            path[at] = None
            at = parents[at]
        node = nodes.get(at)
        for key in reversed(path):
            node = nodes[key] = append_messages(node, converted[key])
    return [nodes[leaf] for leaf in leaves]


def _convert_message(key: str, message: Mapping[str, Any], notes: Counter[str]) -> Iterator[ConvertedMessage]:
    """Convert a message to entries. An answer with tool calls becomes several entries."""
    at = parse_time(message.get("created_at"))
    blocks = [block for block in message.get("content") or () if isinstance(block, Mapping)]
    if not any(block.get("type") == "text" and block.get("text") for block in blocks) and message.get("text"):
        blocks.append({"type": "text", "text": message["text"]})
    if message.get("sender") != "assistant":
        yield from _convert_user_message(key, message, blocks, at, notes)
        return
    rounds = _split_rounds(key, blocks, notes)
    if not rounds:
        notes[EMPTY] += 1
    for number, (role, content, extra) in enumerate(rounds):
        sent = {"role": "user" if role == "tool" else "assistant", "content": content}
        yield ConvertedMessage(
            key=f"{key}/{number}" if number else key,
            entry=Entry(
                role=role, wire=WIRE.name, native=json_bytes.encode(sent), at=at, mark=_find_mark(role, content)
            ),
            meta={"beside": extra} if extra else {},
        )


def _find_mark(role: str, content: list[dict[str, Any]]) -> str:
    return "error" if role == "tool" and content[0].get("is_error") else ""


def _convert_user_message(
    key: str, message: Mapping[str, Any], blocks: list[Mapping[str, Any]], at: int, notes: Counter[str]
) -> Iterator[ConvertedMessage]:
    texts = [str(block.get("text")) for block in blocks if block.get("type") == "text" and block.get("text")]
    for each in message.get("attachments") or ():
        name, text = each.get("file_name") or "attachment", each.get("extracted_content")
        texts.append(f"[{name}]\n{text}" if text else f"[{name}, not in the export]")
        notes[FILES] += not text
    for each in message.get("files") or ():
        texts.append(f"[{each.get('file_name') or 'file'}, not in the export]")
        notes[FILES] += 1
    texts = [text for text in texts if text.strip()]
    others = [block for block in blocks if block.get("type") != "text"]
    _count_blocks(others, notes, alone=not texts)
    texts = texts or [_build_placeholder(others)] * bool(others)
    if not texts:
        notes[EMPTY] += 1
        return
    meta: dict[str, Any] = {"beside": others} if others else {}
    if (sender := message.get("sender")) != "human":
        notes[UNKNOWN_AUTHORS] += 1
        meta["sender"] = sender
    yield ConvertedMessage(
        key=key, entry=Entry(role="user", wire=WIRE.name, native=WIRE.write_user(texts), at=at), meta=meta
    )


def _build_placeholder(extra: Sequence[Mapping[str, Any]]) -> str:
    """Return a placeholder such as `[image]`, for a message that has no content except these blocks."""
    return " ".join(f"[{format_kind(kind)}]" for kind in dict.fromkeys(str(block.get("type")) for block in extra))


def _count_blocks(extra: Sequence[Mapping[str, Any]], notes: Counter[str], *, alone: bool) -> None:
    """Record in `notes` how many blocks of a message are kept as its metadata only.

    With `alone`, the message has no other content and becomes a placeholder; then each type of block is noted once.
    """
    kinds = [str(block.get("type")) for block in extra]
    thoughts = [kind for kind in kinds if kind in _THOUGHTS]
    notes[THOUGHTS] += len(thoughts)
    if alone:
        notes.update(
            {describe_unknown_kind(kind) for kind in kinds} - {describe_unknown_kind(kind) for kind in thoughts}
        )
    else:
        notes[BLOCKS] += len(kinds) - len(thoughts)


_Round = tuple[str, list[dict[str, Any]], list[Any]]


def _split_rounds(key: str, blocks: list[Mapping[str, Any]], notes: Counter[str]) -> list[_Round]:
    """Split an answer into assistant messages and tool results, each with the blocks to keep as its metadata."""
    rounds: list[_Round] = []
    waiting: list[str] = []
    extra: list[Any] = []
    for number, block in enumerate(blocks):
        kind = block.get("type")
        if kind == "text" and str(block.get("text") or "").strip():
            converted: dict[str, Any] = {"type": "text", "text": block["text"]}
        elif kind == "tool_use":
            call = _clean_name(str(block.get("id") or "")) or f"toolu_{derive_id(key, str(number), size=24)}"
            waiting.append(call)
            given = block.get("input")
            name = _clean_name(str(block.get("name") or "tool")) or "tool"
            converted = {
                "type": "tool_use",
                "id": call,
                "name": name,
                "input": given if isinstance(given, dict) else {},
            }
        elif kind == "tool_result":
            answers = _clean_name(str(block.get("tool_use_id") or "")) or next(iter(waiting), "-")
            waiting = [each for each in waiting if each != answers]
            result = json_bytes.value(
                WIRE.write_result(answers, _extract_result(block), error=bool(block.get("is_error")))
            )
            rounds.append(("tool", result["content"], extra))
            extra = []
            continue
        else:
            extra += [block] if kind != "text" else []
            continue
        # Text between a call and its result is moved before the call.
        if not rounds or rounds[-1][0] == "tool":
            rounds.append(("assistant", [converted], extra))
        else:
            content = rounds[-1][1]
            calls = sum(each["type"] == "tool_use" for each in content)
            content.insert(len(content) - calls if converted["type"] == "text" else len(content), converted)
            rounds[-1][2].extend(extra)
        extra = []
    if extra and rounds:
        rounds[-1][2].extend(extra)
    _count_blocks([block for _, _, kept in rounds for block in kept] or extra, notes, alone=not rounds)
    if extra and not rounds:
        rounds.append(("assistant", [{"type": "text", "text": _build_placeholder(extra)}], extra))
    return rounds


def _extract_result(block: Mapping[str, Any]) -> str:
    """Return the output of a tool as text."""
    content = block.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str)) or (
        json_bytes.encode(content).decode() if parts else ""
    )


def _clean_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]

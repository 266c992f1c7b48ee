"""Import Claude's data export: `conversations.json`, a list of conversations with their `chat_messages`.

A message has a text and, in newer exports, blocks: texts, thoughts, and tool calls with their results, often several
rounds in one message. They are converted to the format of Anthropic's API, with each result in a message of its own. If
messages name their parents, they form a tree, whose main branch is the path to the current message. For attachments,
only the extracted text is imported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from longtalk._util import json_bytes
from longtalk.transcript.pack import Entry
from longtalk.transfer.importers.notes import note, of_kind, shown
from longtalk.transfer.importers.tree import (
    EMPTY,
    OTHERS,
    Piece,
    Source,
    Spot,
    behind,
    found,
    moment,
    short,
    unreadable,
)
from longtalk.transfer.load import ParsedConversation
from longtalk.wires.anthropic.wire import WIRE

TOOL = "claude.ai"
THOUGHTS = note(
    "thoughts of the model are kept beside its answers, and not sent",
    "thought of the model is kept beside its answer, and not sent",
)
FILES = note("files are only names in this export", "file is only a name in this export")
BLOCKS = note(
    "blocks of other kinds are kept beside their message, and not sent",
    "block of another kind is kept beside its message, and not sent",
)
_THOUGHTS = ("thinking", "redacted_thinking")


def is_one(first: Mapping[str, bytes]) -> bool:
    """Return True if these are the members of a conversation in Claude's export."""
    return first.get("chat_messages", b"")[:1] == b"["


def read(data: bytes, number: int) -> ParsedConversation:
    """Return the conversation in a JSON object. If the JSON can't be read, `number` identifies the conversation."""
    name = f"conversation {number}"
    try:
        held = json_bytes.value(data)
        name = str(held.get("uuid") or short(data.decode("utf-8", "replace")))
        return _read(held, name)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        return unreadable(name, problem)


def _read(held: Mapping[str, Any], name: str) -> ParsedConversation:
    notes: Counter[str] = Counter()
    messages = {str(each.get("uuid") or number): each for number, each in enumerate(held["chat_messages"])}
    pieces = {key: list(_pieces(key, message, notes)) for key, message in messages.items()}
    parents = _parents(messages)
    passed = set(parents.values())
    leaves = [key for key in messages if key not in passed]
    current = held.get("current_leaf_message_uuid")
    last = current if current in messages else next(reversed(messages), None)
    if last is not None and last not in leaves:
        leaves.append(last)
    source = Source(
        tool=TOOL,
        id=name,
        title=str(held.get("name") or ""),
        created=moment(held.get("created_at")),
        updated=moment(held.get("updated_at")),
        meta={"summary": held["summary"]} if held.get("summary") else {},
        ends=_ends(parents, pieces, leaves),
        main=leaves.index(last) if last is not None else 0,
    )
    return found(source, notes)


def _parents(messages: Mapping[str, Mapping[str, Any]]) -> dict[str, str | None]:
    """Return the parent of each message: the parent that it names or, if no message names one, the previous message."""
    keys = list(messages)
    told = {key: message.get("parent_message_uuid") for key, message in messages.items()}
    if any(parent in messages for parent in told.values()):
        return {key: parent if parent in messages else None for key, parent in told.items()}
    return dict(zip(keys, [None, *keys], strict=False))


def _ends(
    parents: Mapping[str, str | None], pieces: Mapping[str, Sequence[Piece]], leaves: Sequence[str]
) -> list[Spot | None]:
    """Return the last message on the path from the root to each of these leaves; None for a path without messages."""
    spots: dict[str | None, Spot | None] = {None: None}
    for leaf in leaves:
        path: dict[str, None] = {}
        at: str | None = leaf
        while at is not None and at not in path and at not in spots:
            path[at] = None
            at = parents[at]
        spot = spots.get(at)
        for key in reversed(path):
            spot = spots[key] = behind(spot, pieces[key])
    return [spots[leaf] for leaf in leaves]


def _pieces(key: str, message: Mapping[str, Any], notes: Counter[str]) -> Iterator[Piece]:
    """Yield a `Piece` for each entry that a message becomes; an answer with tool calls becomes several entries."""
    at = moment(message.get("created_at"))
    blocks = [block for block in message.get("content") or () if isinstance(block, Mapping)]
    if not any(block.get("type") == "text" and block.get("text") for block in blocks) and message.get("text"):
        blocks.append({"type": "text", "text": message["text"]})
    if message.get("sender") != "assistant":
        yield from _asked(key, message, blocks, at, notes)
        return
    rounds = _rounds(key, blocks, notes)
    if not rounds:
        notes[EMPTY] += 1
    for number, (role, made, beside) in enumerate(rounds):
        sent = {"role": "user" if role == "tool" else "assistant", "content": made}
        yield Piece(
            key=f"{key}/{number}" if number else key,
            entry=Entry(role=role, wire=WIRE.name, native=json_bytes.encode(sent), at=at, mark=_mark(role, made)),
            meta={"beside": beside} if beside else {},
        )


def _mark(role: str, made: list[dict[str, Any]]) -> str:
    return "error" if role == "tool" and made[0].get("is_error") else ""


def _asked(
    key: str, message: Mapping[str, Any], blocks: list[Mapping[str, Any]], at: int, notes: Counter[str]
) -> Iterator[Piece]:
    texts = [str(block.get("text")) for block in blocks if block.get("type") == "text" and block.get("text")]
    for each in message.get("attachments") or ():
        name, held = each.get("file_name") or "attachment", each.get("extracted_content")
        texts.append(f"[{name}]\n{held}" if held else f"[{name}, not in the export]")
        notes[FILES] += not held
    for each in message.get("files") or ():
        texts.append(f"[{each.get('file_name') or 'file'}, not in the export]")
        notes[FILES] += 1
    texts = [text for text in texts if text.strip()]
    others = [block for block in blocks if block.get("type") != "text"]
    _count(others, notes, alone=not texts)
    texts = texts or [_placeholder(others)] * bool(others)
    if not texts:
        notes[EMPTY] += 1
        return
    meta: dict[str, Any] = {"beside": others} if others else {}
    if (sender := message.get("sender")) != "human":
        notes[OTHERS] += 1
        meta["sender"] = sender
    yield Piece(key=key, entry=Entry(role="user", wire=WIRE.name, native=WIRE.user(texts), at=at), meta=meta)


def _placeholder(beside: Sequence[Mapping[str, Any]]) -> str:
    """Return a text that stands for a message of which no block can be sent to a model."""
    return " ".join(f"[{shown(kind)}]" for kind in dict.fromkeys(str(block.get("type")) for block in beside))


def _count(beside: Sequence[Mapping[str, Any]], notes: Counter[str], *, alone: bool) -> None:
    """Count in `notes` the blocks of a message that are kept as its metadata.

    With `alone`, the message has no other content, and its blocks are counted by kind.
    """
    kinds = [str(block.get("type")) for block in beside]
    thoughts = [kind for kind in kinds if kind in _THOUGHTS]
    notes[THOUGHTS] += len(thoughts)
    if alone:
        notes.update({of_kind(kind) for kind in kinds} - {of_kind(kind) for kind in thoughts})
    else:
        notes[BLOCKS] += len(kinds) - len(thoughts)


_Round = tuple[str, list[dict[str, Any]], list[Any]]


def _rounds(key: str, blocks: list[Mapping[str, Any]], notes: Counter[str]) -> list[_Round]:
    """Split an answer into assistant messages and tool results, each with the blocks to keep as its metadata."""
    rounds: list[_Round] = []
    waiting: list[str] = []
    beside: list[Any] = []
    for number, block in enumerate(blocks):
        kind = block.get("type")
        if kind == "text" and str(block.get("text") or "").strip():
            made: dict[str, Any] = {"type": "text", "text": block["text"]}
        elif kind == "tool_use":
            call = _plain(str(block.get("id") or "")) or f"toolu_{short(key, str(number), size=24)}"
            waiting.append(call)
            given = block.get("input")
            name = _plain(str(block.get("name") or "tool")) or "tool"
            made = {"type": "tool_use", "id": call, "name": name, "input": given if isinstance(given, dict) else {}}
        elif kind == "tool_result":
            answers = _plain(str(block.get("tool_use_id") or "")) or next(iter(waiting), "-")
            waiting = [each for each in waiting if each != answers]
            result = json_bytes.value(WIRE.result(answers, _result(block), error=bool(block.get("is_error"))))
            rounds.append(("tool", result["content"], beside))
            beside = []
            continue
        else:
            beside += [block] if kind != "text" else []
            continue
        # Text that follows a call whose result has not arrived yet moves before the call.
        if not rounds or rounds[-1][0] == "tool":
            rounds.append(("assistant", [made], beside))
        else:
            said = rounds[-1][1]
            calls = sum(each["type"] == "tool_use" for each in said)
            said.insert(len(said) - calls if made["type"] == "text" else len(said), made)
            rounds[-1][2].extend(beside)
        beside = []
    if beside and rounds:
        rounds[-1][2].extend(beside)
    _count([block for _, _, kept in rounds for block in kept] or beside, notes, alone=not rounds)
    if beside and not rounds:
        rounds.append(("assistant", [{"type": "text", "text": _placeholder(beside)}], beside))
    return rounds


def _result(block: Mapping[str, Any]) -> str:
    """Return the output of a tool as text."""
    content = block.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str)) or (
        json_bytes.encode(content).decode() if parts else ""
    )


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]

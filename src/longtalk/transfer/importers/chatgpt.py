"""Import ChatGPT's data export: `conversations.json`, a list of conversations, each of them a tree of messages.

The messages are in `mapping`, as nodes with a parent and children, and `current_node` names the message that was shown
last. The path to it becomes the main branch; edited prompts and regenerated answers become further branches. A message
from the assistant whose `recipient` is not "all" is a tool call, and the tool's message after it is the result. An
export has only pointers to images and files, and at most a summary of a model's reasoning; both are kept as metadata of
the entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from longtalk._util import json_bytes
from longtalk.transcript.pack import Entry
from longtalk.transfer.importers.notes import note, of_kind, shown
from longtalk.transfer.importers.tree import EMPTY, OTHERS, Piece, Source, Spot, found, moment, short, unreadable
from longtalk.transfer.load import ParsedConversation
from longtalk.wires.neutral import system
from longtalk.wires.openai_chat.wire import WIRE

TOOL = "chatgpt"
HIDDEN = note("hidden messages were left out", "hidden message was left out")
THOUGHTS = note(
    "summaries of what the model thought are kept beside its answers, and not sent",
    "summary of what the model thought is kept beside its answer, and not sent",
)
CONTEXTS = note(
    "texts of custom instructions and memory are kept beside the conversation, and not sent",
    "text of custom instructions or memory is kept beside the conversation, and not sent",
)
IMAGES = note("images are only pointers in this export", "image is only a pointer in this export")
FILES = note(
    "recordings and files are only pointers in this export", "recording or file is only a pointer in this export"
)
_CONTEXTS = ("user_editable_context", "model_editable_context")
_THOUGHTS = ("thoughts", "reasoning_recap")
_TEXTS = frozenset(
    ["text", "multimodal_text", "code", "execution_output", "system_error", "tether_browsing_display", "tether_quote"]
)
"""The content types whose complete text is imported."""
_ROLES = ("user", "assistant", "tool", "system")


def is_one(first: Mapping[str, bytes]) -> bool:
    """Return True if these are the members of a conversation in ChatGPT's export."""
    return first.get("mapping", b"")[:1] == b"{" and "messages" not in first


def read(data: bytes, number: int) -> ParsedConversation:
    """Return the conversation in a JSON object. If the JSON can't be read, `number` identifies the conversation."""
    name = f"conversation {number}"
    try:
        held = json_bytes.value(data)
        name = str(held.get("conversation_id") or held.get("id") or short(data.decode("utf-8", "replace")))
        return _read(held, name)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        return unreadable(name, problem)


def _read(held: dict[str, Any], name: str) -> ParsedConversation:
    mapping: dict[str, dict[str, Any]] = held["mapping"]
    reading = _Reading(moment(held.get("create_time")))
    leaves = list(_leaves(mapping))
    current = held.get("current_node")
    if current not in mapping:
        # Without a current node, the main branch is the path that was created last.
        current = leaves[-1] if leaves else None
    if current is not None and current not in leaves:
        leaves.append(current)
    ends = [reading.end(mapping, leaf) for leaf in leaves]
    beside = {key: held[key] for key in ("gizmo_id", "default_model_slug") if held.get(key)}
    source = Source(
        tool=TOOL,
        id=name,
        title=str(held.get("title") or ""),
        created=moment(held.get("create_time")),
        updated=moment(held.get("update_time")),
        meta={**beside, **({"context": reading.context} if reading.context else {})},
        ends=ends,
        main=leaves.index(current) if current is not None else 0,
    )
    return found(source, reading.notes)


def _leaves(mapping: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the last node of each path through the tree, in the order in which the paths were created."""
    todo = [name for name, node in mapping.items() if node.get("parent") not in mapping][::-1]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        children = [child for child in mapping[name].get("children") or () if child in mapping]
        todo += reversed(children)
        if not children:
            yield name


class _Place(NamedTuple):
    """The state of reading a path up to a node: the last message, its time, the open tool call and pending thoughts."""

    end: Spot | None
    at: int
    call: str = ""
    thoughts: Sequence[Any] = ()


class _Reading:
    """A reader of the messages of one conversation. It reads each message once, even if several paths share it."""

    def __init__(self, created: int) -> None:
        self.notes: Counter[str] = Counter()
        self.context: list[Any] = []
        self._start = _Place(None, created)
        self._places: dict[str | None, _Place] = {}

    def end(self, mapping: Mapping[str, Mapping[str, Any]], leaf: str) -> Spot | None:
        """Return the last message on the path from the root to the node `leaf`, or None if the path has no messages."""
        path: dict[str, Mapping[str, Any]] = {}
        at: str | None = leaf
        while at is not None and at in mapping and at not in path and at not in self._places:
            path[at] = mapping[at]
            at = mapping[at].get("parent")
        place = self._places.get(at, self._start)
        for name, node in reversed(path.items()):
            place = self._places[name] = self._behind(place, name, node["message"]) if node.get("message") else place
        return place.end

    def _behind(self, place: _Place, name: str, message: Mapping[str, Any]) -> _Place:
        at = moment(message.get("create_time")) or place.at
        piece, thoughts = self._piece(name, message, at, place.call, place.thoughts)
        if piece is None:
            return _Place(place.end, at, place.call, thoughts)
        return _Place(Spot(piece, place.end), at, short(name, size=24) if _recipient(message) else "", thoughts)

    def _piece(
        self, name: str, message: Mapping[str, Any], at: int, call: str, thoughts: Sequence[Any]
    ) -> tuple[Piece | None, Sequence[Any]]:
        """Return a message as a `Piece`, and the model's thoughts so far, to keep as metadata of the next answer.

        If the message becomes no entry, None is returned instead of a `Piece`.
        """
        content, beside = message.get("content") or {}, message.get("metadata") or {}
        kind, author = content.get("content_type"), message.get("author") or {}
        role = author.get("role")
        if kind in _CONTEXTS:
            self.notes[CONTEXTS] += 1
            self.context.append({key: value for key, value in content.items() if key != "content_type" and value})
            return None, ()
        if kind in _THOUGHTS:
            self.notes[THOUGHTS] += 1
            return None, [*thoughts, content.get("thoughts") or content.get("content")]
        text, pointers = _said(content)
        # Content of an unknown type is represented by its text or a placeholder, and kept complete as metadata.
        unknown = kind is not None and str(kind) not in _TEXTS and not pointers
        silent = unknown and not text.strip()
        text = f"[{shown(kind)}]" if silent else text
        if not text.strip() and not (role == "tool" and call):
            self.notes[EMPTY] += bool(role in ("user", "assistant"))
            return None, ()
        if beside.get("is_visually_hidden_from_conversation"):
            self.notes[HIDDEN] += 1
            return None, ()
        if silent:
            self.notes[of_kind(kind)] += 1
        self.notes[OTHERS] += role not in _ROLES
        images = sum("image" in kind for kind, _ in pointers)
        self.notes[IMAGES] += images
        self.notes[FILES] += len(pointers) - images
        meta: dict[str, Any] = {}
        if pointers:
            meta["pointers"] = [pointer for _, pointer in pointers]
        if files := [each.get("name") for each in beside.get("attachments") or () if isinstance(each, Mapping)]:
            meta["attachments"] = files
        if thoughts and role == "assistant":
            meta["thoughts"] = list(thoughts)
        if kind not in ("text", "multimodal_text", None):
            meta["content_type"] = kind
        if unknown:
            meta["content"] = content
        if role not in _ROLES:
            meta["role"] = role
        piece = Piece(
            key=name,
            entry=_entry(str(role), text, at, call=call, name=name, to=_recipient(message)),
            model=str(beside.get("model_slug") or "") if role == "assistant" else "",
            meta=meta,
            tool=str(author.get("name") or ""),
        )
        return piece, ()


def _entry(role: str, text: str, at: int, *, call: str, name: str, to: str) -> Entry:
    if role == "system":
        return system(text, at=at)
    if role == "tool":
        # Without a call before it, the result becomes an event.
        return Entry(role="tool", wire=WIRE.name, native=WIRE.result(call or "-", text, error=False), at=at)
    message: dict[str, Any] = {"role": "assistant" if role == "assistant" else "user", "content": text}
    if to and role == "assistant":
        function = {"name": to, "arguments": _arguments(text)}
        calls = [{"id": short(name, size=24), "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    return Entry(role=message["role"], wire=WIRE.name, native=json_bytes.encode(message), at=at)


def _recipient(message: Mapping[str, Any]) -> str:
    """Return the name of the tool that a message calls; empty if the message calls no tool."""
    to = message.get("recipient") or "all"
    by = (message.get("author") or {}).get("role")
    return "" if to == "all" or by != "assistant" else "".join(c if c.isalnum() or c in "_-" else "_" for c in str(to))


def _arguments(text: str) -> str:
    """Return the arguments of a tool call as a JSON object.

    Text that is not a JSON object, such as a program, becomes the member `input` of one.
    """
    try:
        if isinstance(json_bytes.value(text.encode()), dict):
            return text
    except (ValueError, RecursionError):
        pass
    return json_bytes.encode({"input": text}).decode()


def _said(content: Mapping[str, Any]) -> tuple[str, list[tuple[str, Any]]]:
    """Return the text of a message, and its pointers to images and files, each with its type."""
    pointers: list[tuple[str, Any]] = []
    texts: list[str] = []
    parts = content.get("parts")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping):
            kind = str(part.get("content_type") or "part")
            if isinstance(part.get("text"), str):
                texts.append(part["text"])
            else:
                pointers.append((kind, dict(part)))
                texts.append(f"[{'image' if 'image' in kind else kind.replace('_', ' ')}, not in the export]")
    if not texts:
        keys = ("title", "url", "text", "result", "summary", "content")
        texts = [content[key] for key in keys if isinstance(content.get(key), str) and content[key].strip()]
    return "\n".join(texts), pointers

"""Import ChatGPT's data export: `conversations.json`, a list of conversations, each a tree of messages.

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
from longtalk.transfer.importers.notes import describe_unknown_kind, format_kind, register_note
from longtalk.transfer.importers.tree import (
    EMPTY,
    UNKNOWN_AUTHORS,
    ConvertedMessage,
    MessageNode,
    ToolConversation,
    convert,
    derive_id,
    parse_time,
    report_malformed,
)
from longtalk.transfer.limits import REFERENCE_BYTES, Budget
from longtalk.transfer.load import ParsedConversation
from longtalk.wires.neutral import system
from longtalk.wires.openai_chat.wire import WIRE

TOOL = "chatgpt"
HIDDEN = register_note("hidden messages were left out", "hidden message was left out")
THOUGHTS = register_note(
    "summaries of the model's reasoning were kept as metadata of its answers and are not sent",
    "summary of the model's reasoning was kept as metadata of its answer and is not sent",
)
CONTEXTS = register_note(
    "texts with custom instructions or memory were kept as metadata of the conversation and are not sent",
    "text with custom instructions or memory was kept as metadata of the conversation and is not sent",
)
IMAGES = register_note(
    "images are missing: the export has only pointers to them", "image is missing: the export has only a pointer to it"
)
FILES = register_note(
    "recordings or files are missing: the export has only pointers to them",
    "recording or file is missing: the export has only a pointer to it",
)
_CONTEXTS = ("user_editable_context", "model_editable_context")
_THOUGHTS = ("thoughts", "reasoning_recap")
_TEXTS = frozenset(
    ["text", "multimodal_text", "code", "execution_output", "system_error", "tether_browsing_display", "tether_quote"]
)
"""The content types whose complete text is imported."""
_ROLES = ("user", "assistant", "tool", "system")


def matches(first: Mapping[str, bytes]) -> bool:
    """Return True if these are the members of a conversation in ChatGPT's export."""
    return first.get("mapping", b"")[:1] == b"{" and "messages" not in first


def read(data: bytes, number: int, budget: Budget) -> ParsedConversation:
    """Read the conversation in a JSON object. If the data is not JSON, the result says so and names it by `number`."""
    name = f"conversation {number}"
    try:
        conversation = json_bytes.value(data)
        name = str(
            conversation.get("conversation_id") or conversation.get("id") or derive_id(data.decode("utf-8", "replace"))
        )
        return _convert(conversation, name, budget)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        return report_malformed(name, problem)


def _convert(conversation: dict[str, Any], name: str, budget: Budget) -> ParsedConversation:
    mapping: dict[str, dict[str, Any]] = conversation["mapping"]
    reader = _Reader(parse_time(conversation.get("create_time")), budget)
    leaves = list(_find_leaves(mapping))
    current = conversation.get("current_node")
    if current not in mapping:
        # Without a current node, the path that was created last becomes the main branch.
        current = leaves[-1] if leaves else None
    if current is not None and current not in leaves:
        leaves.append(current)
    ends = [reader.find_end(mapping, leaf) for leaf in leaves]
    extra = {key: conversation[key] for key in ("gizmo_id", "default_model_slug") if conversation.get(key)}
    source = ToolConversation(
        tool=TOOL,
        id=name,
        title=str(conversation.get("title") or ""),
        created=parse_time(conversation.get("create_time")),
        updated=parse_time(conversation.get("update_time")),
        meta={**extra, **({"context": reader.context} if reader.context else {})},
        ends=ends,
        main=leaves.index(current) if current is not None else 0,
    )
    return convert(source, reader.notes, budget)


def _find_leaves(mapping: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
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


class _PathState(NamedTuple):
    """The state after reading a path up to a node: its last message, the time, the open tool call, pending thoughts."""

    end: MessageNode | None
    at: int
    call: str = ""
    thoughts: Sequence[Any] = ()


class _Reader:
    """A reader of one conversation. It reads each message once, even if the message is on several paths."""

    def __init__(self, created: int, budget: Budget) -> None:
        self._budget = budget
        self.notes: Counter[str] = Counter()
        self.context: list[Any] = []
        self._start = _PathState(None, created)
        self._states: dict[str | None, _PathState] = {}

    def find_end(self, mapping: Mapping[str, Mapping[str, Any]], leaf: str) -> MessageNode | None:
        """Return the last message on the path from the root to the node `leaf`, or None if the path has no messages."""
        path: dict[str, Mapping[str, Any]] = {}
        at: str | None = leaf
        while at is not None and at in mapping and at not in path and at not in self._states:
            path[at] = mapping[at]
            at = mapping[at].get("parent")
        state = self._states.get(at, self._start)
        for name, node in reversed(path.items()):
            state = self._states[name] = (
                self._add_message(state, name, node["message"]) if node.get("message") else state
            )
        return state.end

    def _add_message(self, state: _PathState, name: str, message: Mapping[str, Any]) -> _PathState:
        at = parse_time(message.get("create_time")) or state.at
        converted, thoughts = self._convert_message(name, message, at, state.call, state.thoughts)
        if converted is None:
            return _PathState(state.end, at, state.call, thoughts)
        return _PathState(
            MessageNode(converted, state.end), at, derive_id(name, size=24) if _find_tool(message) else "", thoughts
        )

    def _convert_message(
        self, name: str, message: Mapping[str, Any], at: int, call: str, thoughts: Sequence[Any]
    ) -> tuple[ConvertedMessage | None, Sequence[Any]]:
        """Return the converted message (None if it should not become an entry) and the thoughts for the next answer.

        `call` is the id of the open tool call, or empty; `thoughts` are the thoughts that precede the message.
        """
        content, metadata = message.get("content") or {}, message.get("metadata") or {}
        kind, author = content.get("content_type"), message.get("author") or {}
        role = author.get("role")
        if kind in _CONTEXTS:
            self.notes[CONTEXTS] += 1
            self.context.append({key: value for key, value in content.items() if key != "content_type" and value})
            return None, ()
        if kind in _THOUGHTS:
            self.notes[THOUGHTS] += 1
            self._budget.spend(REFERENCE_BYTES * len(thoughts))
            return None, [*thoughts, content.get("thoughts") or content.get("content")]
        text, pointers = _extract_text(content)
        # Content of an unknown type becomes its text or a placeholder; the whole content is kept as metadata.
        unknown = kind is not None and str(kind) not in _TEXTS and not pointers
        has_no_text = unknown and not text.strip()
        text = f"[{format_kind(kind)}]" if has_no_text else text
        if not text.strip() and not (role == "tool" and call):
            self.notes[EMPTY] += bool(role in ("user", "assistant"))
            return None, ()
        if metadata.get("is_visually_hidden_from_conversation"):
            self.notes[HIDDEN] += 1
            return None, ()
        if has_no_text:
            self.notes[describe_unknown_kind(kind)] += 1
        self.notes[UNKNOWN_AUTHORS] += role not in _ROLES
        images = sum("image" in kind for kind, _ in pointers)
        self.notes[IMAGES] += images
        self.notes[FILES] += len(pointers) - images
        meta: dict[str, Any] = {}
        if pointers:
            meta["pointers"] = [pointer for _, pointer in pointers]
        if files := [each.get("name") for each in metadata.get("attachments") or () if isinstance(each, Mapping)]:
            meta["attachments"] = files
        if thoughts and role == "assistant":
            # Several answers may follow the same thoughts, and each gets a copy of them.
            self._budget.spend(sum(len(str(thought)) for thought in thoughts))
            meta["thoughts"] = list(thoughts)
        if kind not in ("text", "multimodal_text", None):
            meta["content_type"] = kind
        if unknown:
            meta["content"] = content
        if role not in _ROLES:
            meta["role"] = role
        converted = ConvertedMessage(
            key=name,
            entry=_build_entry(str(role), text, at, call=call, name=name, to=_find_tool(message)),
            model=str(metadata.get("model_slug") or "") if role == "assistant" else "",
            meta=meta,
            tool=str(author.get("name") or ""),
        )
        return converted, ()


def _build_entry(role: str, text: str, at: int, *, call: str, name: str, to: str) -> Entry:
    if role == "system":
        return system(text, at=at)
    if role == "tool":
        # A result without a call later becomes an event.
        return Entry(role="tool", wire=WIRE.name, native=WIRE.write_result(call or "-", text, error=False), at=at)
    message: dict[str, Any] = {"role": "assistant" if role == "assistant" else "user", "content": text}
    if to and role == "assistant":
        function = {"name": to, "arguments": _build_arguments(text)}
        calls = [{"id": derive_id(name, size=24), "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    return Entry(role=message["role"], wire=WIRE.name, native=json_bytes.encode(message), at=at)


def _find_tool(message: Mapping[str, Any]) -> str:
    """Return the name of the tool that a message calls; empty if the message calls no tool."""
    to = message.get("recipient") or "all"
    by = (message.get("author") or {}).get("role")
    return "" if to == "all" or by != "assistant" else "".join(c if c.isalnum() or c in "_-" else "_" for c in str(to))


def _build_arguments(text: str) -> str:
    """Return the arguments of a tool call as a JSON object.

    Text that is not a JSON object, such as a program, is wrapped as `{"input": text}`.
    """
    try:
        if isinstance(json_bytes.value(text.encode()), dict):
            return text
    except (ValueError, RecursionError):
        pass
    return json_bytes.encode({"input": text}).decode()


def _extract_text(content: Mapping[str, Any]) -> tuple[str, list[tuple[str, Any]]]:
    """Return the text of a message, and its pointers to images and files as pairs of type and pointer."""
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

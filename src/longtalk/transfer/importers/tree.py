"""Convert conversations of other tools from trees of messages to branches, turns and entries.

Entry ids are derived from the ids in the source. Importing the same file again therefore gives the same conversation,
and a conversation that has grown since then begins with the same entries. A tool call without a result gets a closing
result, which says that the outcome is unknown, and a result without a call becomes an event. Any model can therefore
continue the conversation. Messages that several branches share are converted once.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import InputError
from longtalk.stores.base import MAIN
from longtalk.tokens import Estimator
from longtalk.transcript.pack import Entry
from longtalk.transcript.transcript import Turn
from longtalk.transfer.conversation_export import BranchPart, ConversationExport, check_export
from longtalk.transfer.importers.notes import register_note
from longtalk.transfer.limits import ENTRY_BYTES, REFERENCE_BYTES, Budget, TooLarge
from longtalk.transfer.load import ParsedConversation
from longtalk.turn.draft import UNKNOWN, add_token_counts
from longtalk.wires import WIRES
from longtalk.wires.anthropic.wire import WIRE as ANTHROPIC
from longtalk.wires.entries import make_closing_result, mark_verbatim
from longtalk.wires.neutral import event
from longtalk.wires.views import MessageView

_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
_OPENING_ROLES = ("user", "system")
CLOSED = register_note("tool calls had no result and were closed", "tool call had no result and was closed")
EVENTS = register_note(
    "tool results belonged to no call and became events", "tool result belonged to no call and became an event"
)
EMPTY = register_note("empty messages were left out", "empty message was left out")
UNKNOWN_AUTHORS = register_note(
    "messages had an unknown author and became user messages", "message had an unknown author and became a user message"
)
NO_MESSAGES = "it contains no messages"
"""The `problem` of a conversation without messages."""


class ConvertedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message from another tool, converted to an entry but not yet placed in the conversation."""

    key: str
    """The id of the message in the source, unique among the messages with the same parent."""
    entry: Entry
    model: str = ""
    meta: Mapping[str, Any] = {}
    """Further properties from the source, kept as metadata of the entry."""
    own: Mapping[str, Any] = {}
    """The app's own metadata of the entry, kept under its own names."""
    tool: str = ""
    """For a tool result, the name of the tool; otherwise empty."""


class MessageNode:
    """A node in a tree of messages: a message and the previous node. Paths that begin alike share these nodes."""

    __slots__ = ("message", "previous")

    def __init__(self, message: ConvertedMessage, previous: MessageNode | None) -> None:
        self.message = message
        self.previous = previous


def append_messages(previous: MessageNode | None, messages: Iterable[ConvertedMessage]) -> MessageNode | None:
    """Append messages to the path that ends with the node `previous`, and return the new last node."""
    for message in messages:
        previous = MessageNode(message, previous)
    return previous


class ToolConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as it was read from another tool's file."""

    tool: str
    id: str
    title: str = ""
    created: int = 0
    updated: int = 0
    meta: Mapping[str, Any] = {}
    """Further properties from the source, kept as metadata of the conversation."""
    own: Mapping[str, Any] = {}
    """The app's own metadata of the conversation, kept under its own names."""
    ends: Sequence[MessageNode | None] = ()
    """The last node of each branch, in the order in which the branches were created; None for an empty branch."""
    main: int = 0
    """The index of the main branch in `ends`."""


def convert(source: ToolConversation, notes: Counter[str], budget: Budget) -> ParsedConversation:
    """Convert a conversation to an export. If it can't be imported, the `problem` of the result says why.

    `notes` counts what was left out or changed when the file was read; the conversion adds its own notes. The memory
    that the conversation needs is charged to `budget`, that of the file; `TooLarge` is raised if it is exceeded.
    """
    export = ConversationExport(id=source.id)
    try:
        export = _build_export(source, notes, budget)
        if not export.branches:
            return ParsedConversation(export, dict(+notes), problem=NO_MESSAGES)
        budget.spend_on_branches(export)
        check_export(export)
    except TooLarge:
        raise
    except (ValueError, InputError) as problem:
        return ParsedConversation(export, problem=str(problem))
    return ParsedConversation(export, dict(+notes))


def report_malformed(name: str | bytes, problem: Exception) -> ParsedConversation:
    """Return a result for a conversation that can't be read; its `problem` names the cause in plain words."""
    id_ = name if isinstance(name, str) else name.decode("utf-8", "replace")
    return ParsedConversation(ConversationExport(id=id_), problem=f"its format is not supported ({_explain(problem)})")


def _explain(problem: Exception) -> str:
    """Describe an error in words that require no knowledge of Python."""
    match problem:
        case UnicodeError():
            return "one of its texts is not UTF-8"
        case KeyError():
            return f"{problem} is missing"
        case RecursionError():
            return "it is nested too deeply"
        case TypeError() | AttributeError():
            return "one of its values has an unexpected type"
    return str(problem) or "one of its values is invalid"


def decode_text(data: bytes | None) -> str:
    """Decode a text that was read from a database as bytes; raise `ValueError` if it is not UTF-8."""
    return (data or b"").decode()


def derive_id(*parts: str, size: int = 12) -> str:
    """Return an id of `size` letters and digits that depends only on `parts`."""
    bits = int.from_bytes(hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()[:16], "little")
    return "".join([_LETTERS[bits >> shift & 31] for shift in range(0, 5 * size, 5)])


def parse_time(value: Any) -> int:
    """Convert a time in seconds or as ISO 8601 text to milliseconds since 1970; return 0 if the value is not a time."""
    try:
        if isinstance(value, str):
            when = dt.datetime.fromisoformat(value)
            value = when.replace(tzinfo=when.tzinfo or dt.UTC).timestamp()
        at = round(float(value) * 1000)
    except (TypeError, ValueError, OverflowError):
        return 0
    return at if 0 <= at < 2**47 else 0


class _EntryNode:
    """A node in the tree of entries: an entry, its position and the node before it."""

    __slots__ = ("branch", "entry", "has_next", "meta", "model", "number", "position", "previous")

    def __init__(self, message: ConvertedMessage, previous: _EntryNode | None, conversation: str) -> None:
        self.previous = previous
        self.position: int = previous.position + 1 if previous else 0
        self.branch = ""
        """The name of the first branch that contains the entry."""
        self.has_next = False
        """True if an entry follows this one on any path."""
        self.number: int
        """The number of entries before this one in its turn."""
        before: Entry | None = previous.entry if previous else None
        opens = before is None or (message.entry.role in _OPENING_ROLES and before.role not in _OPENING_ROLES)
        if before is None or previous is None or opens or previous.has_next:
            # If a second path continues from here, its entries begin a new turn; otherwise two entries would have the
            # same id.
            turn, self.number = derive_id(conversation, before.id if before else "", message.key), 0
        else:
            turn, self.number = before.turn, previous.number + 1
        parent = before.id if before else None
        self.entry: Entry = msgspec.structs.replace(message.entry, id=f"{turn}-{self.number}", parent=parent, turn=turn)
        self.meta = {**message.own, "imported": {"id": message.key, **message.meta}}
        self.model = message.model
        if previous:
            previous.has_next = True


class _PathState(NamedTuple):
    """The state after converting a path up to a message: its last entry, and messages held back until later."""

    here: _EntryNode | None = None
    open_calls: Mapping[str, str] = {}
    """The tool calls that have no result yet: the tool's name by call id."""
    events: tuple[ConvertedMessage, ...] = ()
    """Events made from results without a call, held back so that they do not come between calls and their results."""
    answers: tuple[ConvertedMessage, ...] = ()
    """Answers without tool calls, held back in case the next message is an answer with calls: then they are merged."""
    last: ConvertedMessage | None = None
    """The last message that is not a tool result. If there are `open_calls`, it made them."""


class _Tree:
    """All entries of a conversation as a tree. An entry that several paths share is created once."""

    def __init__(self, conversation: str, budget: Budget) -> None:
        self._conversation = conversation
        self._budget = budget
        self._nodes: dict[tuple[_EntryNode | None, str], _EntryNode] = {}
        self._states: dict[MessageNode | None, _PathState] = {None: _PathState()}

    @property
    def nodes(self) -> list[_EntryNode]:
        return list(self._nodes.values())

    def add_path(self, node: MessageNode | None) -> _EntryNode | None:
        """Convert the path that ends with `node`, and return the node of its last entry; None if the path is empty."""
        new: list[MessageNode] = []
        while node is not None and node not in self._states:
            new.append(node)
            node = node.previous
        state = self._states[node]
        for each in reversed(new):
            waiting = len(state.open_calls) + len(state.events) + len(state.answers)
            self._budget.spend(REFERENCE_BYTES * (1 + waiting))
            messages, state = _add_message(state, each.message)
            state = self._states[each] = state._replace(here=self._append(state.here, messages))
        return self._append(state.here, _finish_path(state))

    def _append(self, here: _EntryNode | None, messages: Iterable[ConvertedMessage]) -> _EntryNode | None:
        """Append messages to the path that ends with `here`, and return its last node. Existing nodes are reused."""
        for message in messages:
            step = here, message.key
            if step not in self._nodes:
                self._budget.spend(ENTRY_BYTES + len(message.entry.native))
                self._nodes[step] = _EntryNode(message, here, self._conversation)
            here = self._nodes[step]
        return here


def _build_export(source: ToolConversation, notes: Counter[str], budget: Budget) -> ConversationExport:
    tree = _Tree(source.id, budget)
    ends = [tree.add_path(node) for node in source.ends]
    nodes = tree.nodes
    notes[CLOSED] += sum(node.entry.condition == "closed" for node in nodes)
    notes[EVENTS] += sum(node.entry.kind == "event" for node in nodes)
    main = ends[source.main] if ends else None
    # A path that ends where another path continues is not a branch.
    others = [end for i, end in enumerate(ends) if end and i != source.main and end is not main and not end.has_next]
    kept: list[_EntryNode] = [*([main] if main else []), *dict.fromkeys(others)]
    if not kept:
        return ConversationExport(id=source.id)
    entries = _count_tokens(nodes)
    turns = _build_turns(nodes, source.tool)
    branches: list[BranchPart] = []
    for end in kept:
        own = _list_own_nodes(end)
        name = f"{MAIN}-{derive_id(own[0].entry.id, size=6)}" if branches else MAIN
        previous = own[0].previous
        branches.append(
            BranchPart(
                name=name,
                source=(previous.branch, own[0].position) if previous else None,
                entries=tuple(entries[id(node)] for node in own),
                turns=tuple(turns[turn] for turn in dict.fromkeys(node.entry.turn for node in own)),
                metas={node.position: node.meta for node in own},
            )
        )
        for node in own:
            node.branch = name
    times = [node.entry.at for node in nodes if node.entry.at]
    created = source.created or min(times, default=0)
    meta = {**source.own, "imported": {"from": source.tool, **source.meta}}
    return ConversationExport(
        id=source.id,
        created=created,
        updated=max(source.updated, created, *times),
        meta={"title": source.title, **meta} if source.title else meta,
        branches=tuple(branches),
    )


def _list_own_nodes(end: _EntryNode) -> list[_EntryNode]:
    """Return the nodes of a path that are not on a branch yet, oldest first."""
    path = [end]
    while (previous := path[-1].previous) and not previous.branch:
        path.append(previous)
    return path[::-1]


def _count_tokens(nodes: Sequence[_EntryNode]) -> dict[int, Entry]:
    """Return the entries of these nodes with token counts filled in, by the `id()` of each node."""
    entries = add_token_counts([mark_verbatim(node.entry) for node in nodes], Estimator())
    return {id(node): entry for node, entry in zip(nodes, entries, strict=True)}


def _build_turns(nodes: Sequence[_EntryNode], tool: str) -> dict[str, Turn]:
    by_turn: dict[str, list[_EntryNode]] = {}
    for node in nodes:
        by_turn.setdefault(node.entry.turn, []).append(node)
    return {name: _build_turn(name, members, tool) for name, members in by_turn.items()}


def _build_turn(name: str, members: Sequence[_EntryNode], tool: str) -> Turn:
    model = next((node.model for node in reversed(members) if node.model), "")
    times = [node.entry.at for node in members]
    answered = members[-1].entry.role == "assistant"
    return Turn(
        id=name,
        status="complete" if answered else "interrupted",
        model=f"{tool}:{model}" if model else tool,
        started=times[0],
        ended=max(times),
        finish="stop" if answered else "interrupted",
    )


def _add_message(state: _PathState, message: ConvertedMessage) -> tuple[list[ConvertedMessage], _PathState]:
    """Return the messages to append to a path, given the next message in the source, and the new state of the path.

    Messages are held back or moved so that results directly follow their calls. Answers directly before an answer with
    calls are merged with it, since some providers reject calls that follow another answer.
    """
    here, open_calls, events, answers, last = state
    entry = message.entry
    seen = WIRES[entry.wire].view(entry.native) if entry.wire in WIRES else MessageView(entry.role)
    added: list[ConvertedMessage] = []
    if entry.role != "assistant":
        added += answers
        answers = ()
    if entry.role == "tool" and seen.call_id not in open_calls:
        source = message.tool or seen.name or "tool"
        events = (*events, msgspec.structs.replace(message, entry=event(seen.text, source=source, at=entry.at)))
    elif entry.role == "tool":
        open_calls = {call: name for call, name in open_calls.items() if call != seen.call_id}
        added.append(message)
    else:
        added += (*_close_calls(last, open_calls), *events)
        events = ()
        if entry.role == "assistant" and not seen.calls:
            answers = (*answers, message)
        else:
            message = _merge_answers([*answers, message])
            answers = ()
            added.append(message)
        open_calls, last = {call.id: call.name for call in seen.calls}, message
    if not open_calls:
        added += events
        events = ()
    return added, _PathState(here, open_calls, events, answers, last)


def _finish_path(state: _PathState) -> list[ConvertedMessage]:
    """Return the messages held back at the end of a path, and a closing result for each call without a result."""
    return [*state.answers, *_close_calls(state.last, state.open_calls), *state.events]


def _merge_answers(messages: Sequence[ConvertedMessage]) -> ConvertedMessage:
    """Merge consecutive answers into one. Only the last may have tool calls, and the result keeps them."""
    last = messages[-1]
    if len(messages) == 1:
        return last
    bodies = [json_bytes.value(message.entry.native) for message in messages]
    if last.entry.wire == ANTHROPIC.name:
        content: Any = [block for body in bodies for block in body["content"]]
    else:
        content = "\n\n".join(body["content"] for body in bodies if body["content"])
    meta: dict[str, Any] = {"ids": [message.key for message in messages]}
    for message in messages:
        meta |= message.meta
    native = json_bytes.encode({**bodies[-1], "content": content})
    return msgspec.structs.replace(
        last,
        key="+".join(message.key for message in messages),
        entry=msgspec.structs.replace(last.entry, native=native),
        meta=meta,
    )


def _close_calls(asked: ConvertedMessage | None, open_calls: Mapping[str, str]) -> Iterator[ConvertedMessage]:
    if asked is None:
        return
    for call, name in open_calls.items():
        entry = make_closing_result(WIRES[asked.entry.wire], call, UNKNOWN, at=asked.entry.at, name=name)
        yield ConvertedMessage(key=f"{asked.key}/{call}", entry=entry)

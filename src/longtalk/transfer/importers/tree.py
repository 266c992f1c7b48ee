"""Convert conversations of other tools, which are trees of messages, to branches, turns and entries.

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
from longtalk.transfer.importers.notes import note
from longtalk.transfer.load import ParsedConversation
from longtalk.turn.draft import UNKNOWN, measured
from longtalk.wires import WIRES
from longtalk.wires.anthropic.wire import WIRE as ANTHROPIC
from longtalk.wires.entries import closing_result
from longtalk.wires.neutral import event
from longtalk.wires.views import MessageView

_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
_OURS = ("user", "system")
CLOSED = note(
    "calls of tools had no result, and were closed",
    "call of a tool had no result, and was closed",
)
TOLD = note(
    "results of tools answer no call, and are told as events",
    "result of a tool answers no call, and is told as an event",
)
EMPTY = note("messages say nothing, and were left out", "message says nothing, and was left out")
OTHERS = note(
    "messages are of others than the user, the model and its tools, and stand here as the user's",
    "message is of another than the user, the model and its tools, and stands here as the user's",
)
NOTHING = "it holds no message"


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A message from another tool, converted to an entry but not yet placed in the conversation."""

    key: str
    """The id of the message in the source, unique among the messages with the same parent."""
    entry: Entry
    model: str = ""
    meta: Mapping[str, Any] = {}
    """Further properties from the source, kept as metadata of the entry."""
    tool: str = ""
    """For a tool result, the name of the tool; otherwise empty."""


class Spot:
    """A node in a tree of messages: a message and the node before it. Paths with the same beginning share nodes."""

    __slots__ = ("piece", "up")

    def __init__(self, piece: Piece, up: Spot | None) -> None:
        self.piece = piece
        self.up = up


def behind(up: Spot | None, pieces: Iterable[Piece]) -> Spot | None:
    """Append messages to the path that ends with `up`, and return its new last node."""
    for piece in pieces:
        up = Spot(piece, up)
    return up


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as it was read from another tool's file."""

    tool: str
    id: str
    title: str = ""
    created: int = 0
    updated: int = 0
    meta: Mapping[str, Any] = {}
    """Further properties from the source, kept as metadata of the conversation."""
    ends: Sequence[Spot | None] = ()
    """The last node of each branch, in the order in which the branches were created; None if it has no messages."""
    main: int = 0
    """The index of the main branch in `ends`."""


def found(source: Source, notes: Counter[str]) -> ParsedConversation:
    """Convert a conversation to an export with notes, or report the problem that prevents its import."""
    export = ConversationExport(id=source.id)
    try:
        export = _export(source, notes)
        if not export.branches:
            return ParsedConversation(export, dict(+notes), problem=NOTHING)
        check_export(export)
    except (ValueError, InputError) as problem:
        return ParsedConversation(export, problem=str(problem))
    return ParsedConversation(export, dict(+notes))


def unreadable(name: str | bytes, problem: Exception) -> ParsedConversation:
    """Return a result that reports a conversation as malformed, with the cause in plain words."""
    told = name if isinstance(name, str) else name.decode("utf-8", "replace")
    return ParsedConversation(ConversationExport(id=told), problem=f"its form is not known here ({_why(problem)})")


def _why(problem: Exception) -> str:
    """Return the cause of an error in words that require no knowledge of Python."""
    match problem:
        case UnicodeError():
            return "a text in it is not UTF-8"
        case KeyError():
            return f"{problem} is missing"
        case RecursionError():
            return "it is nested too deeply"
        case TypeError() | AttributeError():
            return "a value in it is of another kind than it should be"
    return str(problem) or "a value in it can't be"


def as_text(held: bytes | None) -> str:
    """Decode a text that was read from a database as bytes; raise `ValueError` if it is not UTF-8."""
    return (held or b"").decode()


def short(*parts: str, size: int = 12) -> str:
    """Return a short id derived from other ids; equal arguments give equal ids."""
    bits = int.from_bytes(hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()[:16], "little")
    return "".join([_LETTERS[bits >> shift & 31] for shift in range(0, 5 * size, 5)])


def moment(value: Any) -> int:
    """Convert a time in seconds or as ISO 8601 text to milliseconds since 1970; return 0 if the value is not a time."""
    try:
        if isinstance(value, str):
            when = dt.datetime.fromisoformat(value)
            value = when.replace(tzinfo=when.tzinfo or dt.UTC).timestamp()
        at = round(float(value) * 1000)
    except (TypeError, ValueError, OverflowError):
        return 0
    return at if 0 <= at < 2**47 else 0


class _Node:
    """An entry and its position in the tree of the conversation."""

    __slots__ = ("branch", "entry", "has_more", "meta", "model", "number", "place", "up")

    def __init__(self, piece: Piece, up: _Node | None, conversation: str) -> None:
        self.up = up
        self.place: int = up.place + 1 if up else 0
        self.branch = ""
        """The name of the first branch that contains the entry."""
        self.has_more = False
        """True if at least one entry follows this one."""
        self.number: int
        before: Entry | None = up.entry if up else None
        opens = before is None or (piece.entry.role in _OURS and before.role not in _OURS)
        if before is None or up is None or opens or up.has_more:
            # A path that diverges here begins a turn of its own; otherwise two entries would have the same id.
            turn, self.number = short(conversation, before.id if before else "", piece.key), 0
        else:
            turn, self.number = before.turn, up.number + 1
        parent = before.id if before else None
        self.entry: Entry = msgspec.structs.replace(piece.entry, id=f"{turn}-{self.number}", parent=parent, turn=turn)
        self.meta = {"imported": {"id": piece.key, **piece.meta}}
        self.model = piece.model
        if up:
            up.has_more = True


class _Course(NamedTuple):
    """The state of converting a path up to a message: its last entry, and pieces that wait for later messages."""

    here: _Node | None = None
    waiting: Mapping[str, str] = {}
    """The tool calls that have no result yet: the name of each tool by the id of the call."""
    told: tuple[Piece, ...] = ()
    """Results without a call, converted to events, which must not come between calls and their results."""
    said: tuple[Piece, ...] = ()
    """Answers without tool calls, which are merged with the next answer if that answer has calls."""
    last: Piece | None = None
    """The last message that is not a tool result; the calls in `waiting` are its calls."""


class _Tree:
    """All entries of a conversation. Entries that several paths share are created once."""

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation
        self._nodes: dict[tuple[_Node | None, str], _Node] = {}
        self._courses: dict[Spot | None, _Course] = {None: _Course()}

    @property
    def nodes(self) -> list[_Node]:
        return list(self._nodes.values())

    def end(self, spot: Spot | None) -> _Node | None:
        """Return the last entry of the path that ends at `spot`, or None if the path is empty."""
        new: list[Spot] = []
        while spot is not None and spot not in self._courses:
            new.append(spot)
            spot = spot.up
        course = self._courses[spot]
        for each in reversed(new):
            pieces, course = _paired(course, each.piece)
            course = self._courses[each] = course._replace(here=self._placed(course.here, pieces))
        return self._placed(course.here, _unpaired(course))

    def _placed(self, here: _Node | None, pieces: Iterable[Piece]) -> _Node | None:
        for piece in pieces:
            step = here, piece.key
            if step not in self._nodes:
                self._nodes[step] = _Node(piece, here, self._conversation)
            here = self._nodes[step]
        return here


def _export(source: Source, notes: Counter[str]) -> ConversationExport:
    tree = _Tree(source.id)
    ends = [tree.end(spot) for spot in source.ends]
    nodes = tree.nodes
    notes[CLOSED] += sum(node.entry.mark == "closed" for node in nodes)
    notes[TOLD] += sum(node.entry.kind == "event" for node in nodes)
    main = ends[source.main] if ends else None
    # A path that ends where another path continues is not a branch.
    others = [end for i, end in enumerate(ends) if end and i != source.main and end is not main and not end.has_more]
    kept: list[_Node] = [*([main] if main else []), *dict.fromkeys(others)]
    if not kept:
        return ConversationExport(id=source.id)
    counted = _counted(nodes)
    turns = _turns(nodes, source.tool)
    branches: list[BranchPart] = []
    for end in kept:
        own = _own(end)
        name = f"{MAIN}-{short(own[0].entry.id, size=6)}" if branches else MAIN
        up = own[0].up
        branches.append(
            BranchPart(
                name=name,
                source=(up.branch, own[0].place) if up else None,
                entries=tuple(counted[id(node)] for node in own),
                turns=tuple(turns[turn] for turn in dict.fromkeys(node.entry.turn for node in own)),
                metas={node.place: node.meta for node in own},
            )
        )
        for node in own:
            node.branch = name
    times = [node.entry.at for node in nodes if node.entry.at]
    created = source.created or min(times, default=0)
    meta = {"imported": {"from": source.tool, **source.meta}}
    return ConversationExport(
        id=source.id,
        created=created,
        updated=max(source.updated, created, *times),
        meta={"title": source.title, **meta} if source.title else meta,
        branches=tuple(branches),
    )


def _own(end: _Node) -> list[_Node]:
    """Return the nodes of a path that are not on a branch yet, oldest first."""
    path = [end]
    while (up := path[-1].up) and not up.branch:
        path.append(up)
    return path[::-1]


def _counted(nodes: Sequence[_Node]) -> dict[int, Entry]:
    """Return the entries with their token counts, by the `id()` of their nodes."""
    entries = measured([node.entry for node in nodes], Estimator())
    return {id(node): entry for node, entry in zip(nodes, entries, strict=True)}


def _turns(nodes: Sequence[_Node], tool: str) -> dict[str, Turn]:
    made: dict[str, list[_Node]] = {}
    for node in nodes:
        made.setdefault(node.entry.turn, []).append(node)
    return {name: _turn(name, members, tool) for name, members in made.items()}


def _turn(name: str, members: Sequence[_Node], tool: str) -> Turn:
    model = next((node.model for node in reversed(members) if node.model), "")
    times = [node.entry.at for node in members]
    whole = members[-1].entry.role == "assistant"
    return Turn(
        id=name,
        status="complete" if whole else "interrupted",
        model=f"{tool}:{model}" if model else tool,
        started=times[0],
        ended=max(times),
        finish="stop" if whole else "interrupted",
    )


def _paired(course: _Course, piece: Piece) -> tuple[list[Piece], _Course]:
    """Return the pieces that a message adds to its path, and the state of the path after the message.

    Results directly follow their calls. Answers right before a call are merged with it, since some providers reject a
    call that follows an answer.
    """
    here, waiting, told, said, last = course
    entry = piece.entry
    seen = WIRES[entry.wire].view(entry.native) if entry.wire in WIRES else MessageView(entry.role)
    made: list[Piece] = []
    if entry.role != "assistant":
        made += said
        said = ()
    if entry.role == "tool" and seen.call_id not in waiting:
        source = piece.tool or seen.name or "tool"
        told = (*told, msgspec.structs.replace(piece, entry=event(seen.text, source=source, at=entry.at)))
    elif entry.role == "tool":
        waiting = {call: name for call, name in waiting.items() if call != seen.call_id}
        made.append(piece)
    else:
        made += (*_closings(last, waiting), *told)
        told = ()
        if entry.role == "assistant" and not seen.calls:
            said = (*said, piece)
        else:
            piece = _joined([*said, piece])
            said = ()
            made.append(piece)
        waiting, last = {call.id: call.name for call in seen.calls}, piece
    if not waiting:
        made += told
        told = ()
    return made, _Course(here, waiting, told, said, last)


def _unpaired(course: _Course) -> list[Piece]:
    """Return the pieces that are still waiting at the end of a path, with closing results for calls that have none."""
    return [*course.said, *_closings(course.last, course.waiting), *course.told]


def _joined(pieces: Sequence[Piece]) -> Piece:
    """Merge answers into one answer that has the tool calls of the last."""
    last = pieces[-1]
    if len(pieces) == 1:
        return last
    messages = [json_bytes.value(piece.entry.native) for piece in pieces]
    if last.entry.wire == ANTHROPIC.name:
        content: Any = [block for message in messages for block in message["content"]]
    else:
        content = "\n\n".join(message["content"] for message in messages if message["content"])
    meta: dict[str, Any] = {"ids": [piece.key for piece in pieces]}
    for piece in pieces:
        meta |= piece.meta
    native = json_bytes.encode({**messages[-1], "content": content})
    return msgspec.structs.replace(
        last,
        key="+".join(piece.key for piece in pieces),
        entry=msgspec.structs.replace(last.entry, native=native),
        meta=meta,
    )


def _closings(asked: Piece | None, waiting: Mapping[str, str]) -> Iterator[Piece]:
    if asked is None:
        return
    for call, name in waiting.items():
        entry = closing_result(WIRES[asked.entry.wire], call, UNKNOWN, at=asked.entry.at, name=name)
        yield Piece(key=f"{asked.key}/{call}", entry=entry)

"""Conversations of other tools as ours: messages on paths that share their beginnings become branches, turns, entries.

Ids come from those that the source has, so that the same file gives the same conversation again, and one that has grown
begins as it did. A call that has no result is closed, and a result that answers no call is told as an event: what comes
out can go on with any model. What paths share is looked at once.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from longtalk import _json
from longtalk.draft import UNKNOWN, measured
from longtalk.errors import InputError
from longtalk.imports.notes import note
from longtalk.intake import Found
from longtalk.pack import Entry
from longtalk.portable import Limb, Talk, check
from longtalk.stores.base import MAIN
from longtalk.tokens import Estimator
from longtalk.transcript import Turn
from longtalk.wires import WIRES
from longtalk.wires.anthropic import WIRE as ANTHROPIC
from longtalk.wires.base import View, closing, event

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
    """A message of the source that becomes an entry."""

    key: str
    """What the source calls it; another one at each place of the tree."""
    entry: Entry
    model: str = ""
    meta: Mapping[str, Any] = {}
    """What else the source knows of it."""
    tool: str = ""
    """Of a result: who gave it."""


class Spot:
    """A message behind others, which may be behind the beginning of many paths."""

    __slots__ = ("piece", "up")

    def __init__(self, piece: Piece, up: Spot | None) -> None:
        self.piece = piece
        self.up = up


def behind(up: Spot | None, pieces: Iterable[Piece]) -> Spot | None:
    """Where a path ends to which these were added."""
    for piece in pieces:
        up = Spot(piece, up)
    return up


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as another tool has it."""

    tool: str
    id: str
    title: str = ""
    created: int = 0
    updated: int = 0
    meta: Mapping[str, Any] = {}
    """What else the source knows of it."""
    ends: Sequence[Spot | None] = ()
    """The last message of each branch, those that were made first come first."""
    main: int = 0
    """Which of them is that of the main branch."""


def found(source: Source, notes: Counter[str]) -> Found:
    """A conversation of ours, and what could not come along."""
    talk = Talk(id=source.id)
    try:
        talk = _talk(source, notes)
        if not talk.limbs:
            return Found(talk, dict(+notes), problem=NOTHING)
        check(talk)
    except (ValueError, InputError) as problem:
        return Found(talk, problem=str(problem))
    return Found(talk, dict(+notes))


def unreadable(name: str | bytes, problem: Exception) -> Found:
    """One that is not as it should be."""
    told = name if isinstance(name, str) else name.decode("utf-8", "replace")
    return Found(Talk(id=told), problem=f"its form is not known here ({_why(problem)})")


def _why(problem: Exception) -> str:
    """What is wrong, for those who don't know Python."""
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
    """What a database has as text, from its bytes. Raises `ValueError` when it is none."""
    return (held or b"").decode()


def short(*parts: str, size: int = 12) -> str:
    """An id made of others: always the same for the same."""
    bits = int.from_bytes(hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()[:16], "little")
    return "".join([_LETTERS[bits >> shift & 31] for shift in range(0, 5 * size, 5)])


def moment(value: Any) -> int:
    """A time in milliseconds since 1970, from seconds or ISO 8601; 0 when it is none."""
    try:
        if isinstance(value, str):
            when = dt.datetime.fromisoformat(value)
            value = when.replace(tzinfo=when.tzinfo or dt.UTC).timestamp()
        at = round(float(value) * 1000)
    except (TypeError, ValueError, OverflowError):
        return 0
    return at if 0 <= at < 2**47 else 0


class _Node:
    """An entry in its place."""

    __slots__ = ("branch", "entry", "has_more", "meta", "model", "number", "place", "up")

    def __init__(self, piece: Piece, up: _Node | None, conversation: str) -> None:
        self.up = up
        self.place: int = up.place + 1 if up else 0
        self.branch = ""
        """The first that it is on."""
        self.has_more = False
        """Whether something was said behind it."""
        self.number: int
        before: Entry | None = up.entry if up else None
        opens = before is None or (piece.entry.role in _OURS and before.role not in _OURS)
        if before is None or up is None or opens or up.has_more:
            # What takes another course begins a turn of its own, or two entries would have one id.
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
    """How a path stands behind a message: what is in its place, and what waits for more."""

    here: _Node | None = None
    waiting: Mapping[str, str] = {}
    """Calls without a result, and the tools that they are of."""
    told: tuple[Piece, ...] = ()
    said: tuple[Piece, ...] = ()
    last: Piece | None = None


class _Tree:
    """All entries of a conversation, each once."""

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation
        self._nodes: dict[tuple[_Node | None, str], _Node] = {}
        self._courses: dict[Spot | None, _Course] = {None: _Course()}

    @property
    def nodes(self) -> list[_Node]:
        return list(self._nodes.values())

    def end(self, spot: Spot | None) -> _Node | None:
        """The last entry of the path that ends there."""
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


def _talk(source: Source, notes: Counter[str]) -> Talk:
    tree = _Tree(source.id)
    ends = [tree.end(spot) for spot in source.ends]
    nodes = tree.nodes
    notes[CLOSED] += sum(node.entry.mark == "closed" for node in nodes)
    notes[TOLD] += sum(node.entry.kind == "event" for node in nodes)
    main = ends[source.main] if ends else None
    # One that ends where another goes on is no branch.
    others = [end for i, end in enumerate(ends) if end and i != source.main and end is not main and not end.has_more]
    kept: list[_Node] = [*([main] if main else []), *dict.fromkeys(others)]
    if not kept:
        return Talk(id=source.id)
    counted = _counted(nodes)
    turns = _turns(nodes, source.tool)
    limbs: list[Limb] = []
    for end in kept:
        own = _own(end)
        name = f"{MAIN}-{short(own[0].entry.id, size=6)}" if limbs else MAIN
        up = own[0].up
        limbs.append(
            Limb(
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
    return Talk(
        id=source.id,
        created=created,
        updated=max(source.updated, created, *times),
        meta={"title": source.title, **meta} if source.title else meta,
        limbs=tuple(limbs),
    )


def _own(end: _Node) -> list[_Node]:
    """What this path has that is on no branch yet."""
    path = [end]
    while (up := path[-1].up) and not up.branch:
        path.append(up)
    return path[::-1]


def _counted(nodes: Sequence[_Node]) -> dict[int, Entry]:
    """The entries by their node, with their lengths."""
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
    """What a piece adds to its path, with calls and results in pairs. Nothing stands between them.

    What was said right before a call is one answer with it: not every provider takes a call behind an answer.
    """
    here, waiting, told, said, last = course
    entry = piece.entry
    seen = WIRES[entry.wire].view(entry.native) if entry.wire in WIRES else View(entry.role)
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
    """What a path still has when nothing comes behind it."""
    return [*course.said, *_closings(course.last, course.waiting), *course.told]


def _joined(pieces: Sequence[Piece]) -> Piece:
    """Answers as one, with the calls of the last."""
    last = pieces[-1]
    if len(pieces) == 1:
        return last
    messages = [_json.value(piece.entry.native) for piece in pieces]
    if last.entry.wire == ANTHROPIC.name:
        content: Any = [block for message in messages for block in message["content"]]
    else:
        content = "\n\n".join(message["content"] for message in messages if message["content"])
    meta: dict[str, Any] = {"ids": [piece.key for piece in pieces]}
    for piece in pieces:
        meta |= piece.meta
    native = _json.encode({**messages[-1], "content": content})
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
        entry = closing(WIRES[asked.entry.wire], call, UNKNOWN, at=asked.entry.at, name=name)
        yield Piece(key=f"{asked.key}/{call}", entry=entry)

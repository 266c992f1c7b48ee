"""Conversations of other tools as ours: messages on paths that share their beginnings become branches, turns, entries.

Ids come from those that the source has, so that the same file gives the same conversation again, and one that has grown
begins as it did. A call that has no result is closed, and a result that answers no call is told as an event: what comes
out can go on with any model.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from longtalk import _json
from longtalk.draft import UNKNOWN, measured
from longtalk.errors import InputError
from longtalk.imports.notes import note
from longtalk.intake import Found
from longtalk.pack import Entry
from longtalk.portable import Limb, Talk, check, limbs
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


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as another tool has it."""

    tool: str
    id: str
    title: str = ""
    created: int = 0
    updated: int = 0
    meta: Mapping[str, Any] = {}
    """What else the source knows of it."""
    paths: Sequence[Sequence[Piece]] = ()
    """From the first message to the last one of each branch, those that were made first come first."""
    main: int = 0
    """Which of the paths is the main branch."""


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

    __slots__ = ("entry", "has_more", "meta", "model", "number", "up")

    def __init__(self, piece: Piece, up: _Node | None, conversation: str) -> None:
        self.up = up
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


def _talk(source: Source, notes: Counter[str]) -> Talk:
    nodes: dict[tuple[_Node | None, str], _Node] = {}
    ends: list[_Node | None] = []
    for path in source.paths:
        here: _Node | None = None
        for piece in _paired(path):
            step = here, piece.key
            if step not in nodes:
                nodes[step] = _Node(piece, here, source.id)
            here = nodes[step]
        ends.append(here)
    notes[CLOSED] += sum(node.entry.mark == "closed" for node in nodes.values())
    notes[TOLD] += sum(node.entry.kind == "event" for node in nodes.values())
    main = ends[source.main] if ends else None
    # One that ends where another goes on is no branch.
    others = [end for i, end in enumerate(ends) if end and i != source.main and end is not main and not end.has_more]
    kept: list[_Node] = [*([main] if main else []), *dict.fromkeys(others)]
    if not kept:
        return Talk(id=source.id)
    paths = [_up(end) for end in kept]
    counted = _counted(list(nodes.values()))
    turns = _turns(list(nodes.values()), source.tool)
    named, owned = [MAIN], {id(node) for node in paths[0]}
    for branch in paths[1:]:
        first = next(node for node in branch if id(node) not in owned)
        named.append(f"{MAIN}-{short(first.entry.id, size=6)}")
        owned |= set(map(id, branch))
    wholes = [
        Limb(
            name=name,
            entries=tuple(counted[id(node)] for node in branch),
            turns=tuple(turns[turn] for turn in dict.fromkeys(node.entry.turn for node in branch)),
            metas={place: node.meta for place, node in enumerate(branch)},
        )
        for name, branch in zip(named, paths, strict=True)
    ]
    times = [node.entry.at for node in nodes.values() if node.entry.at]
    created = source.created or min(times, default=0)
    meta = {"imported": {"from": source.tool, **source.meta}}
    return Talk(
        id=source.id,
        created=created,
        updated=max(source.updated, created, *times),
        meta={"title": source.title, **meta} if source.title else meta,
        limbs=limbs(wholes),
    )


def _up(end: _Node) -> list[_Node]:
    path = [end]
    while up := path[-1].up:
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


def _paired(path: Iterable[Piece]) -> Iterator[Piece]:
    """The pieces of a path, with calls and results in pairs. Nothing stands between them.

    What was said right before a call is one answer with it: not every provider takes a call behind an answer.
    """
    waiting: dict[str, str] = {}
    told: list[Piece] = []
    said: list[Piece] = []
    last: Piece | None = None
    for piece in path:
        entry = piece.entry
        seen = WIRES[entry.wire].view(entry.native) if entry.wire in WIRES else View(entry.role)
        if entry.role != "assistant":
            yield from said
            said = []
        if entry.role == "tool" and seen.call_id not in waiting:
            source = piece.tool or seen.name or "tool"
            told.append(msgspec.structs.replace(piece, entry=event(seen.text, source=source, at=entry.at)))
        elif entry.role == "tool":
            del waiting[seen.call_id]
            yield piece
        else:
            if last:
                yield from _closings(last, waiting)
            yield from told
            told = []
            if entry.role == "assistant" and not seen.calls:
                said.append(piece)
            else:
                piece = _joined([*said, piece])
                said = []
                yield piece
            waiting, last = {call.id: call.name for call in seen.calls}, piece
        if not waiting:
            yield from told
            told = []
    yield from said
    if last:
        yield from _closings(last, waiting)
    yield from told


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


def _closings(behind: Piece, waiting: Mapping[str, str]) -> Iterator[Piece]:
    for call, name in waiting.items():
        entry = closing(WIRES[behind.entry.wire], call, UNKNOWN, at=behind.entry.at, name=name)
        yield Piece(key=f"{behind.key}/{call}", entry=entry)

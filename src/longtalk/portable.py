"""A whole conversation as a value, and as a file that people can keep: JSON, or JSON lines. And back.

A `Talk` is all that a store has of a conversation: each branch as what it added to the one it begins on (a `Limb`), so
that what branches share is there once. Both files hold the same lines, one for each entry, turn and record, as the
JSONL store writes them (`stores/lines.py`): they can be read, compared and searched line by line, and the JSON of every
entry comes back byte for byte.

What is read here may come from anybody. `check` proves that it is a conversation: each entry is one JSON object and
follows the one before it. Keys and types of lines that are not known here are those of a later version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec

from longtalk import _json
from longtalk.errors import InputError
from longtalk.pack import MAX_COUNT, MAX_SHAPES, OWN, Entry
from longtalk.stores.base import ALONE, MAIN, Placed, linked, numbered
from longtalk.stores.ledger import plain
from longtalk.stores.lines import (
    EntryLine,
    Line,
    RecordLine,
    TurnLine,
    entry_line,
    entry_of,
    in_base64,
    line_of,
    meta_of,
    read_line,
    record_line,
    record_of,
    turn_line,
    turn_of,
)
from longtalk.transcript import Record, Turn

FORMAT = 1
"""The number of the format, in both files under the key `longtalk`."""

# A parser gives up somewhere below a thousand levels, and some are taken by the file around an entry.
_DEEP = 200
_LEVELS = re.compile(rb'"(?:[^"\\]|\\.)*"|([\[{])|[\]}]', re.DOTALL)
_PARTS = ("entries", "turns", "records")


class Limb(msgspec.Struct, frozen=True, kw_only=True):
    """What a branch added to the one it begins on."""

    name: str
    source: tuple[str, int] | None = None
    """The branch it begins on, and with how many entries of its path."""
    entries: tuple[Entry, ...] = ()
    turns: tuple[Turn, ...] = ()
    """Those that have an entry among these."""
    records: tuple[Placed, ...] = ()
    """Those that hold up to one of these entries, and on the first branch those that hold from the start (-1)."""
    metas: dict[int, dict[str, Any]] = {}
    """The app's own data on these entries, by place on the path."""

    @property
    def start(self) -> int:
        """The place of the first of these entries."""
        return self.source[1] if self.source else 0

    @property
    def stop(self) -> int:
        """How many entries the path has."""
        return self.start + len(self.entries)


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """A whole conversation: all branches, each behind the one it begins on."""

    id: str
    created: int = 0
    updated: int = 0
    meta: dict[str, Any] = {}
    limbs: tuple[Limb, ...] = ()


# Branches


def whole(talk: Talk, branch: str = MAIN) -> Limb:
    """A branch with all of its path, as one that begins on no other."""
    found: list[Limb] = []
    needed, size = branch, None
    for limb in reversed(talk.limbs):
        if limb.name == needed:
            stop = limb.stop if size is None else max(limb.start, min(size, limb.stop))
            found.append(msgspec.structs.replace(limb, entries=limb.entries[: stop - limb.start]))
            if limb.source is None:
                break
            needed, size = limb.source[0], limb.start if size is None else min(size, limb.start)
    if not found:
        names = ", ".join(repr(limb.name) for limb in talk.limbs) or "none"
        raise InputError(f"The conversation {talk.id!r} has no branch {branch!r}. There are: {names}.")
    found.reverse()
    entries = [entry for limb in found for entry in limb.entries]
    here = {entry.turn for entry in entries}
    # Of a turn that goes on on a later branch, what that one knows counts.
    turns = {turn.id: turn for limb in found for turn in limb.turns if turn.id in here}
    # There may be many branches of this length.
    parts = [(limb, limb.stop) for limb in found]
    return Limb(
        name=branch,
        entries=tuple(entries),
        turns=tuple(turns.values()),
        records=tuple(placed for limb, stop in parts for placed in limb.records if placed.place < stop),
        metas={place: meta for limb, stop in parts for place, meta in limb.metas.items() if place < stop},
    )


def limbs(paths: Iterable[Limb]) -> tuple[Limb, ...]:
    """Whole branches as what each added to the one before it that it shares most with."""
    made: list[Limb] = []
    # Entries behind each other as numbers, and the first branch that has them: who shares what is told in one walk.
    steps: dict[tuple[int, Entry, str], int] = {}
    owners = [""]
    full: dict[str, Limb] = {}
    for path in paths:
        here, size, source = 0, 0, ""
        for place, entry in enumerate(path.entries):
            meta = path.metas.get(place)
            step = (here, entry, "" if meta is None else json.dumps(meta, sort_keys=True))
            if step in steps:
                size, source = place + 1, owners[steps[step]]
            else:
                steps[step] = len(owners)
                owners.append(path.name)
            here = steps[step]
        entries = path.entries[size:]
        turns = {entry.turn for entry in entries}
        limb = Limb(
            name=path.name,
            source=(source, size) if size else None,
            entries=entries,
            turns=tuple(turn for turn in path.turns if turn.id in turns),
            records=_records(path, size, full[source] if size else None),
            metas={place: meta for place, meta in path.metas.items() if place >= size},
        )
        made.append(limb)
        full[path.name] = path
    return tuple(made)


def _records(path: Limb, size: int, source: Limb | None) -> tuple[Placed, ...]:
    """What a branch has that its source does not. Of what each keeps to itself, what holds on it goes along."""
    found = [placed for placed in path.records if placed.place >= (size or -1)]
    for kind in ALONE if source else ():
        mine, others = (
            [each for each in limb.records if each.record.kind == kind and each.place < size]
            for limb in (path, source or path)
        )
        if mine[-1:] != others[-1:]:
            nothing = Placed(Record(kind, path.entries[size - 1].id, 0, b"{}"), size - 1)
            found.insert(0, mine[-1] if mine else nothing)
    return tuple(found)


def check(talk: Talk) -> None:
    """Raise `ValueError` unless this is a conversation that a store could hold, and that can be written and read."""
    plain(talk.meta)
    if not all(0 <= at < 2**47 for at in (talk.created, talk.updated)):
        _refuse("a time is out of range")
    said = [entry for limb in talk.limbs for entry in limb.entries]
    # More could be written, and never read again.
    if len({(entry.kind, entry.role, entry.wire) for entry in said}) > MAX_SHAPES:
        _refuse("its entries have too many different roles")
    if sum(entry.tokens for entry in said) > MAX_COUNT:
        _refuse("its tokens can't be true")
    known: dict[str, Limb] = {}
    for limb in talk.limbs:
        if limb.name in known:
            _refuse(f"it has two branches {limb.name!r}")
        if limb.source and (limb.source[0] not in known or not 0 <= limb.start <= known[limb.source[0]].stop):
            _refuse(f"the branch {limb.name!r} begins where there is nothing")
        linked(_before(limb, known), limb.entries)
        for entry in limb.entries:
            _check_entry(entry)
        here = {entry.turn for entry in limb.entries}
        for turn in limb.turns:
            _fits(turn.started, turn.ended)
            if turn.id not in here:
                _refuse(f"the turn {turn.id!r} has no entry on the branch {limb.name!r}")
        if any(not -1 <= placed.place < limb.stop for placed in limb.records):
            _refuse(f"a record of the branch {limb.name!r} holds up to an entry that is not there")
        for place, meta in limb.metas.items():
            plain(meta)
            if not limb.start <= place < limb.stop:
                _refuse(f"there is no entry at the place {place} of the branch {limb.name!r} to keep data on")
        known[limb.name] = limb


def _before(limb: Limb, known: dict[str, Limb]) -> str | None:
    """The id of the entry behind which a branch begins."""
    size = limb.start
    while size and limb.source:
        limb = known[limb.source[0]]
        if size > limb.start:
            return limb.entries[size - limb.start - 1].id
    return None


def _check_entry(entry: Entry) -> None:
    numbered(entry)
    # As in a state: whoever makes a date of a time can rely on it.
    if not 0 <= entry.at < 2**47 or not 0 <= entry.tokens <= MAX_COUNT:
        _refuse(f"the time or the tokens of {entry.id!r} are out of range")
    try:
        # It goes between others into a request: what is more than one object could speak for somebody else there.
        _json.prove(entry.native)
    except ValueError as problem:
        _refuse(f"{entry.id!r} is not one JSON object ({problem})")
    if entry.wire == OWN:
        said = _json.value(entry.native)
        if not isinstance(said.get("text"), str) or (entry.kind == "event" and "source" not in said):
            _refuse(f"{entry.id!r} is an event or a system message without a text")


def _fits(*numbers: int) -> None:
    if not all(-(2**63) <= number < 2**63 for number in numbers):
        _refuse("a time is out of range")


def _refuse(what: str) -> NoReturn:
    raise ValueError(what)


# Writing


def to_json(talks: Sequence[Talk]) -> bytes:
    """One JSON document, `{"longtalk": 1, "conversations": […]}`, with a line for each entry, turn and record."""
    return b'{"longtalk":%d,"conversations":[\n%s\n]}\n' % (FORMAT, b",\n".join(map(_document, talks)))


def _document(talk: Talk) -> bytes:
    check(talk)
    branches = [_opened(plain(_branch(limb)), zip(_PARTS, _lines(limb), strict=True)) for limb in talk.limbs]
    return _opened(plain(_head(talk)), [("branches", branches)])


def _opened(head: bytes, lists: Iterable[tuple[str, Sequence[bytes]]]) -> bytes:
    """An object with lists at its end, each of their elements on a line of its own."""
    parts = [b'"%s":[\n%s\n]' % (name.encode(), b",\n".join(lines)) for name, lines in lists if lines]
    return b"%s}" % b",".join((head[:-1], *parts))


def to_jsonl(talks: Sequence[Talk]) -> bytes:
    """The same as lines: of a conversation, then of each branch and its entries, turns and records."""
    lines: list[bytes] = []
    for talk in talks:
        check(talk)
        lines.append(plain({"type": "conversation", "longtalk": FORMAT, **_head(talk)}))
        for limb in talk.limbs:
            lines.append(plain({"type": "branch", **_branch(limb)}))
            for part in _lines(limb):
                lines += part
    return b"".join([line + b"\n" for line in lines])


def _head(talk: Talk) -> dict[str, Any]:
    return {"id": talk.id, "created": talk.created, "updated": talk.updated, "meta": talk.meta}


def _branch(limb: Limb) -> dict[str, Any]:
    return {"name": limb.name, **({"source": limb.source} if limb.source else {})}


def _lines(limb: Limb) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """The lines of its entries, turns and records."""
    return (
        [_line(entry_line(entry, limb.metas.get(place))) for place, entry in enumerate(limb.entries, limb.start)],
        [_line(turn_line(turn)) for turn in limb.turns],
        [_line(record_line(placed)) for placed in limb.records],
    )


def _line(value: Line) -> bytes:
    line = line_of(value)
    return line if _depth(line) <= _DEEP else line_of(in_base64(value))


def _depth(line: bytes) -> int:
    """How many levels of objects and arrays a line has; 0 for one that can't have many."""
    if line.count(b"[") + line.count(b"{") <= _DEEP:
        return 0
    level = deepest = 0
    for token in _LEVELS.finditer(line):
        if token[0][:1] != b'"':
            level += 1 if token[1] else -1
            deepest = max(deepest, level)
    return deepest


# Reading


class _Head(msgspec.Struct):
    id: str
    created: int = 0
    updated: int = 0
    meta: dict[str, Any] = {}


class _Branch(msgspec.Struct):
    name: str
    source: tuple[str, int] | None = None


_Known = TypeVar("_Known", _Head, _Branch)


def of_json(data: bytes) -> list[Talk]:
    """What `to_json` has written. Raises `ValueError`."""
    members = _json.fields(data)
    _known(members)
    talks = []
    for conversation in _json.items(members["conversations"]):
        held = _json.fields(conversation)
        branches = [_json.fields(branch) for branch in _json.items(held.get("branches", b"[]"))]
        lines = [[line for part in _PARTS for line in _json.items(branch.get(part, b"[]"))] for branch in branches]
        named = [_read(_Branch, branch) for branch in branches]
        talks.append(_talk(_read(_Head, held), zip(named, lines, strict=True)))
    return talks


def of_jsonl(lines: Iterable[tuple[int, bytes]]) -> list[Talk]:
    """What `to_jsonl` has written, as numbered lines. Raises `ValueError`."""
    found: list[tuple[_Head, list[tuple[_Branch, list[bytes]]]]] = []
    for number, line in lines:
        try:
            members = _json.fields(line)
            kind = _json.text(members.get("type", b"null"))
            if kind == "conversation":
                _known(members)
                found.append((_read(_Head, members), []))
            elif kind == "branch":
                found[-1][1].append((_read(_Branch, members), []))
            elif kind in ("entry", "turn", "record"):
                found[-1][1][-1][1].append(line)
        except ValueError as problem:
            _refuse(f"line {number}: {problem}")
        except IndexError:
            _refuse(f"line {number} belongs to no branch of a conversation")
    return [_talk(head, branches) for head, branches in found]


def _known(members: dict[str, bytes]) -> None:
    number = _json.value(members.get("longtalk", b"null"))
    if type(number) is not int or number < 1:
        _refuse("it does not say the number of its format")
    if number > FORMAT:
        _refuse(f"its format is {number}, and {FORMAT} is the last one known here: upgrade longtalk to read it")


def _read(kind: type[_Known], members: dict[str, bytes]) -> _Known:
    known = {name: members[name] for name in kind.__struct_fields__ if name in members}
    return msgspec.convert(json.loads(_json.build(known)), kind)


def _talk(head: _Head, branches: Iterable[tuple[_Branch, Sequence[bytes]]]) -> Talk:
    limbs = tuple(_limb(branch, lines) for branch, lines in branches)
    talk = Talk(id=head.id, created=head.created, updated=head.updated, meta=head.meta, limbs=limbs)
    check(talk)
    return talk


def _limb(branch: _Branch, lines: Sequence[bytes]) -> Limb:
    entries: list[Entry] = []
    turns: list[Turn] = []
    records: list[Placed] = []
    metas: dict[int, dict[str, Any]] = {}
    start = branch.source[1] if branch.source else 0
    for number, data in enumerate(lines, 1):
        try:
            line = read_line(data)
            if isinstance(line, EntryLine):
                if (meta := meta_of(line)) is not None:
                    metas[start + len(entries)] = msgspec.convert(meta, dict[str, Any])
                entries.append(entry_of(line))
            elif isinstance(line, TurnLine):
                turns.append(turn_of(line))
            elif isinstance(line, RecordLine):
                records.append(record_of(line))
        except ValueError as problem:
            _refuse(f"line {number} of the branch {branch.name!r}: {problem}")
    return Limb(
        name=branch.name,
        source=branch.source,
        entries=tuple(entries),
        turns=tuple(turns),
        records=tuple(records),
        metas=metas,
    )

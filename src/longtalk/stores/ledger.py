"""One conversation as a value in memory, for stores that keep it there: the tree, and what a commit does to it.

Entries lie in *segments*. A branch has one of its own, which begins behind so many entries of another's; a path is the
segments from the root to the branch's. A fork and a cut begin a segment, so that nothing is copied or moved, and a
place in a segment never means another entry. So does a record that is a branch's own, where others have left it at
that place. Nothing here touches a disk or takes a lock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from longtalk.errors import InputError
from longtalk.memory.labels import findable
from longtalk.memory.terms import folded
from longtalk.pack import EMPTY, Entry, Pack
from longtalk.stores.base import (
    ALONE,
    BARE,
    MAIN,
    REPLACED,
    Asked,
    Commit,
    Head,
    Hit,
    KeyTaken,
    Lease,
    Moved,
    Placed,
    Receipt,
    Request,
    Summary,
    checked,
    linked,
    numbered,
)
from longtalk.transcript import Record, Turn, now
from longtalk.wires import said

# Chinese, Japanese and Korean are written without spaces: each character is a word.
_NO_SPACES = r"[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
_WORD = re.compile(rf"(?=\w){_NO_SPACES}|(?:(?!{_NO_SPACES})\w)+")


class Segment:
    """Entries of one branch, behind the first `start` of the path that `base` is the end of."""

    __slots__ = ("base", "entries", "firsts", "metas", "own", "start", "words")

    def __init__(self, base: Segment | None = None, start: int = 0) -> None:
        # One that says nothing of its own before this place is passed over, or many cuts would make a long path.
        while base is not None and base.base is not None and start < base.start + (not base.own):
            base = base.base
        self.base: Segment | None = base
        self.start: int = start
        self.own: bool = False
        """Whether it has a record that only its branch is to see."""
        self.entries: list[Entry] = []
        self.firsts: list[tuple[int, str]] = []
        """Where a turn begins on the path, and its id."""
        self.metas: dict[int, bytes] = {}
        """The app's own data on entries, as JSON, by place."""
        self.words: dict[int, tuple[str, str]] = {}
        """The texts of entries that were searched before, as they are and as `words`, by place."""

    @property
    def stop(self) -> int:
        return self.start + len(self.entries)


class Span(NamedTuple):
    """The part start … stop of a path that lies in one segment."""

    segment: Segment
    start: int
    stop: int

    def entries(self) -> list[Entry]:
        return self.segment.entries[self.start - self.segment.start : self.stop - self.segment.start]


class Branch(msgspec.Struct):
    name: str
    segment: Segment
    revision: int
    updated: int
    token: int = 0
    lease: Lease | None = None


class Attached(NamedTuple):
    """A record in the tree. Its place is -1 when it holds from before the first entry of the segment's path."""

    segment: Segment
    place: int
    record: Record


class Key(NamedTuple):
    """A turn that was asked for with a key."""

    request: Request
    branch: str
    turn: str
    place: int


class Ledger:
    """A conversation."""

    def __init__(self) -> None:
        self.created = 0
        self.meta = b"{}"
        self._branches: dict[str, Branch] = {}
        self._turns: dict[str, Turn] = {}
        self._begun: dict[str, list[tuple[Segment, int]]] = {}
        """Where each turn begins: once, unless branches that do not share it made it go on."""
        self._manifests: dict[str, bytes] = {}
        self._records: list[Attached] = []
        self._keys: dict[str, Key] = {}
        self._segments: list[Segment] = []

    def __bool__(self) -> bool:
        return bool(self._branches)

    # Changing

    def check(self, commit: Commit) -> None:
        """Raise what `Store.write` says unless `apply` can be done."""
        head = self.head(commit.branch, records=False)
        try:
            checked(head, commit, self.head(commit.source[0], records=False) if commit.source else None)
        except Moved as moved:
            raise Moved(moved.head and self.head(moved.head.branch)) from None
        segment, size = self._from(commit)
        path = _path(segment, size)
        if commit.source and commit.behind not in (None, _last(_path(segment, commit.source[1]))):
            raise Moved(self.head(commit.source[0]))
        linked(_last(path), commit.entries)
        for entry in commit.entries:
            numbered(entry)
        turn = commit.turn
        if turn is not None and turn.id not in self._turns:
            own = any(entry.turn == turn.id for entry in commit.entries)
            if not own and self._begins(turn.id, path) is None:
                raise ValueError(f"the turn {turn.id!r} can't begin without an entry")
        if commit.request is not None and turn is not None:
            key = self._keys.get(commit.request.key)
            if key is not None and key.turn != turn.id:
                raise KeyTaken(commit.request.key)
        for placed in commit.records:
            if not -1 <= placed.place < size + len(commit.entries):
                raise ValueError("a record can't hold up to an entry that is not there")

    def apply(self, commit: Commit) -> None:
        """Do what a commit says, whole or not at all."""
        self.check(commit)
        meta = None if commit.meta is None else plain(commit.meta)
        entry_meta = {i: plain(each) for i, each in commit.entry_meta.items()}
        if not self._branches:
            self.created = commit.at
        segment, size = self._from(commit)
        branch = self._branches.get(commit.branch)
        if branch is None or segment is None or size < segment.stop or self._is_shared(segment, commit):
            segment = Segment(segment, size)
            self._segments.append(segment)
        if branch is None:
            branch = self._branches[commit.branch] = Branch(commit.branch, segment, 0, commit.at)
        branch.segment = segment
        branch.revision += 1
        branch.updated = commit.at
        branch.lease = commit.lease
        branch.token = max(branch.token, commit.lease.token if commit.lease else 0)
        self._append(segment, commit.entries)
        if commit.turn is not None:
            self._turns[commit.turn.id] = commit.turn
            if commit.manifest:
                self._manifests[commit.turn.id] = commit.manifest
        if commit.request is not None and commit.turn is not None and commit.request.key not in self._keys:
            place = self._begins(commit.turn.id, _path(segment, segment.stop)) or 0
            self._keys[commit.request.key] = Key(commit.request, commit.branch, commit.turn.id, place)
        for placed in commit.records:
            alone = placed.record.kind in ALONE
            segment.own = segment.own or alone
            holder = segment if alone else _holder(segment, placed.place)
            self._records.append(Attached(holder, placed.place, placed.record))
        if meta is not None:
            self.meta = meta
        segment.metas.update({size + i: each for i, each in entry_meta.items()})

    def write(self, commit: Commit) -> Head:
        """`apply` it, and where the branch stands then."""
        self.apply(commit)
        return self._head(self._branches[commit.branch])

    def _from(self, commit: Commit) -> tuple[Segment | None, int]:
        """Where what a commit adds begins: the end of which segment, and behind how many entries of its path."""
        branch = self._branches.get(commit.branch)
        if branch is not None:
            segment, size = branch.segment, branch.segment.stop
        elif commit.source is not None:
            segment, size = self._branches[commit.source[0]].segment, commit.source[1]
        else:
            return None, 0
        return segment, size if commit.cut is None else commit.cut

    def _is_shared(self, segment: Segment, commit: Commit) -> bool:
        """Whether others left this segment behind a place that only its branch is to see a record of."""
        own = [placed.place for placed in commit.records if placed.record.kind in ALONE]
        return bool(own) and any(each.base is segment and each.start > min(own) for each in self._segments)

    def after(self, commit: Commit) -> tuple[str | None, int]:
        """The last entry and the size of the path that a commit would make."""
        segment, size = self._from(commit)
        last = commit.entries[-1].id if commit.entries else _last(_path(segment, size))
        return last, size + len(commit.entries)

    def _append(self, segment: Segment, entries: Iterable[Entry]) -> None:
        turn = segment.entries[-1].turn if segment.entries else None
        for entry in entries:
            if entry.turn != turn and self._begins(entry.turn, _path(segment, segment.stop)) is None:
                segment.firsts.append((segment.stop, entry.turn))
                self._begun.setdefault(entry.turn, []).append((segment, segment.stop))
            segment.entries.append(entry)
            turn = entry.turn

    def _begins(self, turn: str, path: list[Span]) -> int | None:
        """The place at which a turn begins on a path."""
        return next((place for segment, place in self._begun.get(turn, ()) if _is_on(path, segment, place)), None)

    def renew(self, branch: str, token: int, until: int) -> bool:
        found = self._branches.get(branch)
        if found is None or found.lease is None or found.lease.token != token:
            return False
        found.lease = msgspec.structs.replace(found.lease, until=until)
        return True

    def describe(self, meta: Mapping[str, Any], entry: str | None) -> bool:
        """Replace the app's own data on the conversation, or on an entry. False: not there."""
        data = plain(meta)
        if entry is None:
            self.meta = data
            return True
        places = list(self._places(entry))
        for segment, place in places:
            segment.metas[place] = data
        return bool(places)

    def quoting(self, entry: str) -> set[int]:
        """The numbers of the records that may quote an entry: those that hold up to it or to one behind it."""
        places = list(self._places(entry))
        return {
            number
            for number, (segment, place, record) in enumerate(self._records)
            if record.kind not in BARE and any(_is_on(_path(segment, place + 1), *node) for node in places)
        }

    def redact(self, entry: str, native: bytes) -> None:
        """Put other JSON in an entry's place. Its branches get another revision: nobody goes on from what they read."""
        quoting = self.quoting(entry)
        self._records = [record for number, record in enumerate(self._records) if number not in quoting]
        for segment, place in self._places(entry):
            i = place - segment.start
            segment.entries[i] = msgspec.structs.replace(segment.entries[i], native=native)
            segment.words.pop(place, None)
            segment.metas.pop(place, None)
        self.touch(entry)

    def touch(self, entry: str) -> None:
        """Give another revision to the branches that have an entry on their path."""
        places = list(self._places(entry))
        for branch in self._branches.values():
            if any(_is_on(_path(branch.segment, branch.segment.stop), *node) for node in places):
                branch.revision += 1

    def holds(self, entry: str) -> bool:
        return any(True for _ in self._places(entry))

    def _places(self, entry: str) -> Iterator[tuple[Segment, int]]:
        for segment in self._segments:
            for i, held in enumerate(segment.entries, segment.start):
                if held.id == entry:
                    yield segment, i

    # Looking

    def head(self, branch: str, *, records: bool = True) -> Head | None:
        found = self._branches.get(branch)
        return self._head(found, records=records) if found else None

    def _head(self, branch: Branch, *, records: bool = True) -> Head:
        path = _path(branch.segment, branch.segment.stop)
        return Head(
            branch=branch.name,
            revision=branch.revision,
            size=branch.segment.stop,
            entry=_last(path),
            token=branch.token,
            lease=branch.lease,
            turn=next((turn for _, turn in self._turns_back(path)), None),
            records=self._shown(path) if records else (),
            created=self.created,
            updated=branch.updated,
        )

    def _shown(self, path: list[Span]) -> tuple[Placed, ...]:
        stops = {id(span.segment): span.stop for span in path}
        found: list[Placed] = []
        replaced: set[str] = set()
        for segment, place, record in reversed(self._records):
            if place < stops.get(id(segment), -1) and record.kind not in replaced:
                found.append(Placed(record, place))
                if record.kind in REPLACED:
                    replaced.add(record.kind)
        return tuple(reversed(found))

    def _turns_back(self, path: list[Span]) -> Iterator[tuple[int, Turn]]:
        """The turns of a path with the places at which they begin, the last first."""
        for span in reversed(path):
            for place, id in reversed(span.segment.firsts):  # noqa: A001
                if place < span.stop and id in self._turns:
                    yield place, self._turns[id]

    def read(self, branch: str, start: int, stop: int) -> Pack:
        index, more, crc = EMPTY.grow(self.between(branch, start, stop))
        return Pack(index, b"[" + more, crc)

    def between(self, branch: str, start: int, stop: int) -> list[Entry]:
        """The entries start … stop of a path."""
        entries: list[Entry] = []
        for span in self._path_of(branch):
            if max(start, span.start) < min(stop, span.stop):
                entries += Span(span.segment, max(start, span.start), min(stop, span.stop)).entries()
        return entries

    def turns(self, branch: str, start: int, stop: int) -> list[tuple[int, Turn]]:
        found: list[tuple[int, Turn]] = []
        for place, turn in self._turns_back(self._path_of(branch)):
            if place < start:
                break
            if place < stop:
                found.append((place, turn))
        return found[::-1]

    def problems(self) -> list[str]:
        """Entries that do not follow the one before them."""
        found: list[str] = []
        for segment in self._segments:
            try:
                linked(_last(_path(segment.base, segment.start)), segment.entries)
            except ValueError as problem:
                found.append(str(problem))
        return found

    def manifest(self, turn: str) -> bytes:
        return self._manifests.get(turn, b"")

    def manifests(self, branch: str, start: int, stop: int) -> dict[str, bytes]:
        turns = [turn.id for _, turn in self.turns(branch, start, stop)]
        return {turn: self._manifests[turn] for turn in turns if turn in self._manifests}

    def records(self, branch: str, kind: str | None) -> list[Placed]:
        stops = {id(span.segment): span.stop for span in self._path_of(branch)}
        return [
            Placed(record, place)
            for segment, place, record in self._records
            if kind in (None, record.kind) and place < stops.get(id(segment), -1)
        ]

    def metas(self, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        return {
            place: json.loads(data)
            for span in self._path_of(branch)
            for place, data in sorted(span.segment.metas.items())
            if max(start, span.start) <= place < min(stop, span.stop)
        }

    def asked(self, key: str) -> Asked | None:
        found = self._keys.get(key)
        if found is None:
            return None
        for name in (found.branch, *sorted(self._branches)):
            place = self._begins(found.turn, self._path_of(name))
            if place is not None:
                return Asked(found.request, name, self._turns[found.turn], place)
        return Asked(found.request, found.branch, self._turns[found.turn], found.place)

    def requests(self) -> list[Asked]:
        return [asked for key in sorted(self._keys) if (asked := self.asked(key))]

    def branches(self) -> list[Head]:
        return [self._head(branch, records=False) for _, branch in sorted(self._branches.items())]

    def summary(self, id: str) -> Summary:  # noqa: A002
        return Summary(
            id=id,
            created=self.created,
            updated=max(branch.updated for branch in self._branches.values()),
            entries=sum(len(segment.entries) for segment in self._segments),
            branches=tuple(sorted(self._branches)),
            meta=json.loads(self.meta),
        )

    def receipt(self, id: str) -> Receipt:  # noqa: A002
        return Receipt(
            conversation=id,
            entries=sum(len(segment.entries) for segment in self._segments),
            turns=len(self._turns),
            records=len(self._records),
            branches=len(self._branches),
            at=now(),
        )

    def found(self, conversation: str) -> Iterator[tuple[Hit, str]]:
        """What can be found, with its `words`: each entry that is on a path, once."""
        seen: dict[int, int] = {}
        for name in sorted(self._branches, key=lambda name: (name != MAIN, name)):
            for segment, start, stop in self._path_of(name):
                for place in range(max(start, seen.get(id(segment), 0)), stop):
                    entry = segment.entries[place - segment.start]
                    text, spaced = _words(segment, place)
                    hit = Hit(
                        conversation=conversation,
                        branch=name,
                        place=place,
                        entry=entry.id,
                        role=entry.role,
                        at=entry.at,
                        text=text,
                    )
                    yield hit, spaced
                seen[id(segment)] = max(stop, seen.get(id(segment), 0))

    def spoken(self, branch: str) -> Iterator[tuple[int, str]]:
        """What was said on a path, the newest first: places, with their `words`; no results of tools."""
        for segment, start, stop in reversed(self._path_of(branch)):
            for place in range(stop - 1, start - 1, -1):
                if segment.entries[place - segment.start].role != "tool":
                    yield place, _words(segment, place)[1]

    def _path_of(self, branch: str) -> list[Span]:
        found = self._branches.get(branch)
        return _path(found.segment, found.segment.stop) if found else []


def _words(segment: Segment, place: int) -> tuple[str, str]:
    """What an entry says, and the `words` that it is found by."""
    if place not in segment.words:
        entry = segment.entries[place - segment.start]
        segment.words[place] = (said(entry), words(findable(entry)))
    return segment.words[place]


def _path(segment: Segment | None, stop: int) -> list[Span]:
    """The first `stop` entries of the path that a segment is the end of, root first."""
    path: list[Span] = []
    while segment is not None:
        path.append(Span(segment, segment.start, max(segment.start, min(stop, segment.stop))))
        stop, segment = min(stop, segment.start), segment.base
    return path[::-1]


def _is_on(path: list[Span], segment: Segment, place: int) -> bool:
    return any(span.segment is segment and place < span.stop for span in path)


def _last(path: list[Span]) -> str | None:
    for segment, start, stop in reversed(path):
        if start < stop:
            return segment.entries[stop - segment.start - 1].id
    return None


def _holder(segment: Segment, place: int) -> Segment:
    """The segment of a path in which a place lies; for -1 the first."""
    while place < segment.start and segment.base is not None:
        segment = segment.base
    return segment


def plain(meta: Mapping[str, Any]) -> bytes:
    """The app's own data as JSON, so that it can't change under a store. A lone surrogate stays one."""
    try:
        return json.dumps(meta, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(meta, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(f"An app's own data must be JSON: {problem}.") from None


def words(text: str) -> str:
    """The words of a text without case and accents, each between two spaces, so that one is found by looking for it."""
    return f" {' '.join(_WORD.findall(folded(text)))} "

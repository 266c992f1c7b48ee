"""A conversation as a tree of entries in memory, and all that can be read of it.

Entries belong to segments, as `_paths` describes. This module does no I/O and takes no locks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from longtalk.stores._paths import clip, is_on_path, list_head_records
from longtalk.stores._segments import (
    AttachedRecord,
    Branch,
    KeyedTurnRef,
    Path,
    Segment,
    find_last_entry,
    find_path,
    make_hit,
    read_words,
)
from longtalk.stores.base import (
    MAIN,
    BranchHead,
    ConversationInfo,
    DeletionReceipt,
    KeyedTurn,
    PlacedRecord,
    SearchHit,
)
from longtalk.stores.checks import check_parents
from longtalk.transcript.pack import EMPTY, Entry, Pack
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Turn, now


class ReadableTree:
    """A conversation with its branches, entries, turns and records, as the methods of `Store` that read return it."""

    def __init__(self) -> None:
        self.created = 0
        self.meta = b"{}"
        self._branches: dict[str, Branch] = {}
        self._turns: dict[str, Turn] = {}
        self._turn_starts: dict[str, list[tuple[Segment, int]]] = {}
        """The segments and positions at which a turn starts, by turn id.

        A turn starts in several segments if branches that don't share its first entry continued the turn.
        """
        self._manifests: dict[str, bytes] = {}
        self._records: list[AttachedRecord] = []
        self._keys: dict[str, KeyedTurnRef] = {}
        self._segments: list[Segment] = []

    def __bool__(self) -> bool:
        return bool(self._branches)

    def head(self, branch: str, *, records: bool = True) -> BranchHead | None:
        found = self._branches.get(branch)
        return self._build_head(found, records=records) if found else None

    def _build_head(self, branch: Branch, *, records: bool = True) -> BranchHead:
        path = find_path(branch.segment, branch.segment.stop)
        return BranchHead(
            branch=branch.name,
            revision=branch.revision,
            size=branch.segment.stop,
            entry=find_last_entry(path),
            token=branch.token,
            lease=branch.lease,
            turn=next((turn for _, turn in self._iterate_turns_backwards(path)), None),
            records=self._list_head_records(path) if records else (),
            created=self.created,
            updated=branch.updated,
        )

    def _list_head_records(self, path: Path) -> tuple[PlacedRecord, ...]:
        records = list_head_records(self._list_records(path), lambda attached: attached.record.kind)
        return tuple([PlacedRecord(record, position) for _, position, record in records])

    def _iterate_turns_backwards(self, path: Path) -> Iterator[tuple[int, Turn]]:
        """Yield the turns of a path, last turn first, each with the position of its first entry."""
        for span in reversed(path):
            for position, id in reversed(span.segment.turn_starts):  # noqa: A001
                if position < span.stop and id in self._turns:
                    yield position, self._turns[id]

    def read(self, branch: str, start: int, stop: int) -> Pack:
        index, more, crc = EMPTY.grow(self.read_entries(branch, start, stop))
        return Pack(index, b"[" + more, crc)

    def read_entries(self, branch: str, start: int, stop: int) -> list[Entry]:
        """Return the entries at positions `start` to `stop - 1` of a branch's path."""
        entries: list[Entry] = []
        for segment, first, end in clip(self._find_branch_path(branch), start, stop):
            entries += segment.entries[first - segment.start : end - segment.start]
        return entries

    def turns(self, branch: str, start: int, stop: int) -> list[tuple[int, Turn]]:
        last_first: list[tuple[int, Turn]] = []
        for position, turn in self._iterate_turns_backwards(self._find_branch_path(branch)):
            if position < start:
                break
            if position < stop:
                last_first.append((position, turn))
        return last_first[::-1]

    def find_problems(self) -> list[str]:
        """Return a description of each segment in which an entry's parent is not the entry before it."""
        problems: list[str] = []
        for segment in self._segments:
            try:
                check_parents(find_last_entry(find_path(segment.base, segment.start)), segment.entries)
            except ValueError as problem:
                problems.append(str(problem))
        return problems

    def manifest(self, turn: str) -> bytes:
        return self._manifests.get(turn, b"")

    def manifests(self, branch: str, start: int, stop: int) -> dict[str, bytes]:
        turns = [turn.id for _, turn in self.turns(branch, start, stop)]
        return {turn: self._manifests[turn] for turn in turns if turn in self._manifests}

    def records(self, branch: str, kind: str | None) -> list[PlacedRecord]:
        records = self._list_records(self._find_branch_path(branch))
        return [PlacedRecord(record, position) for _, position, record in records if kind in (None, record.kind)]

    def _list_records(self, path: Path) -> list[AttachedRecord]:
        """Return all records that are attached to entries of a path, oldest first."""
        stops = {span.segment: span.stop for span in path}
        return [each for each in self._records if each.position < stops.get(each.segment, -1)]

    def metas(self, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        return {
            position: json.loads(data)
            for segment, first, end in clip(self._find_branch_path(branch), start, stop)
            for position, data in sorted(segment.metas.items())
            if first <= position < end
        }

    def keyed_turn(self, key: str) -> KeyedTurn | None:
        ref = self._keys.get(key)
        if ref is None:
            return None
        for name in (ref.branch, *sorted(self._branches)):
            position = self._find_turn_start(ref.turn, self._find_branch_path(name))
            if position is not None:
                return KeyedTurn(ref.request, name, self._turns[ref.turn], position)
        return KeyedTurn(ref.request, ref.branch, self._turns[ref.turn], ref.position)

    def keyed_turns(self) -> list[KeyedTurn]:
        return [turn for key in sorted(self._keys) if (turn := self.keyed_turn(key))]

    def branches(self) -> list[BranchHead]:
        return [self._build_head(branch, records=False) for _, branch in sorted(self._branches.items())]

    def newest_heads(self, most: int) -> list[BranchHead]:
        """Return the heads, with their records, of the branches that were changed last."""
        newest = sorted(self._branches.values(), key=lambda branch: (-branch.updated, branch.name))
        return [self._build_head(branch) for branch in newest[:most]]

    def info(self, id: str) -> ConversationInfo:  # noqa: A002
        return ConversationInfo(
            id=id,
            created=self.created,
            updated=max(branch.updated for branch in self._branches.values()),
            entries=sum(len(segment.entries) for segment in self._segments),
            branches=tuple(sorted(self._branches)),
            meta=json.loads(self.meta),
        )

    def make_receipt(self, id: str) -> DeletionReceipt:  # noqa: A002
        return DeletionReceipt(
            conversation=id,
            entries=sum(len(segment.entries) for segment in self._segments),
            turns=len(self._turns),
            records=len(self._records),
            branches=len(self._branches),
            at=now(),
        )

    def iterate_hits(self, conversation: str) -> Iterator[tuple[SearchHit, str]]:
        """Yield each entry that is on at least one branch, once, as a search hit with the entry's normalized words."""
        seen: dict[int, int] = {}
        for name in sorted(self._branches, key=lambda name: (name != MAIN, name)):
            for segment, start, stop in self._find_branch_path(name):
                for position in range(max(start, seen.get(id(segment), 0)), stop):
                    yield make_hit(segment, position, conversation, name)
                seen[id(segment)] = max(stop, seen.get(id(segment), 0))

    def iterate_words(self, branch: str) -> Iterator[tuple[int, str]]:
        """Yield the position and normalized words of each entry on a branch, newest first, except tool results."""
        for segment, start, stop in reversed(self._find_branch_path(branch)):
            for position in range(stop - 1, start - 1, -1):
                if segment.entries[position - segment.start].role != "tool":
                    yield position, read_words(segment, position)[1]

    def _find_branch_path(self, branch: str) -> Path:
        found = self._branches.get(branch)
        return find_path(found.segment, found.segment.stop) if found else []

    def _find_turn_start(self, turn: str, path: Path) -> int | None:
        """Return the position of a turn's first entry on a path, or None if the turn doesn't start on that path."""
        return next(
            (position for segment, position in self._turn_starts.get(turn, ()) if is_on_path(path, segment, position)),
            None,
        )

    def find_quoting_records(self, entry: str) -> set[int]:
        """Return the indexes of the records that may quote an entry, counting all records in the order they were added.

        These are the records of `quotes_entries` kinds that are attached to this entry or to a later one on its path.
        """
        positions = list(self._find_entry(entry))
        return {
            number
            for number, (segment, position, record) in enumerate(self._records)
            if kind_of(record.kind).quotes_entries
            and any(is_on_path(find_path(segment, position + 1), *node) for node in positions)
        }

    def has_entry(self, entry: str) -> bool:
        return any(True for _ in self._find_entry(entry))

    def _find_entry(self, entry: str) -> Iterator[tuple[Segment, int]]:
        """Yield the segment and position of each entry with this id."""
        for segment in self._segments:
            for position, stored in enumerate(segment.entries, segment.start):
                if stored.id == entry:
                    yield segment, position

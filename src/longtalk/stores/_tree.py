"""A conversation as a tree of entries in memory, and the effect of commits on the tree.

Entries belong to segments, as `_paths` describes. A commit also starts a new segment if it adds a record that only its
own branch may see and another branch forks off after the record's position; otherwise the other branch would see the
record. This module does no I/O and takes no locks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from longtalk.stores._paths import clip, find_base, find_segment, is_on_path, list_head_records
from longtalk.stores._redaction import get_turn_id, redact_turn
from longtalk.stores._rows import to_utf8_json
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
    Commit,
    ConversationInfo,
    DeletionReceipt,
    HeadMoved,
    KeyedRequest,
    KeyedTurn,
    PlacedRecord,
    RequestKeyTaken,
    SearchHit,
)
from longtalk.stores.checks import check_commit, check_entry_id, check_parents, check_record_positions
from longtalk.transcript.pack import EMPTY, Entry, Pack
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Turn, now


class ConversationTree:
    """A conversation with its branches, entries, turns and records. Its methods mirror those of `Store`."""

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

    # Writing

    def check(self, commit: Commit) -> None:
        """Raise `HeadMoved`, `RequestKeyTaken` or `ValueError`, as `Store.write` does, if a commit can't be applied."""
        head = self.head(commit.branch, records=False)
        try:
            check_commit(head, commit, self.head(commit.source[0], records=False) if commit.source else None)
        except HeadMoved as moved:
            raise HeadMoved(moved.head and self.head(moved.head.branch)) from None
        segment, size = self._find_append_point(commit)
        path = find_path(segment, size)
        if commit.source and commit.source_entry not in (None, find_last_entry(find_path(segment, commit.source[1]))):
            raise HeadMoved(self.head(commit.source[0]))
        check_parents(find_last_entry(path), commit.entries)
        for entry in commit.entries:
            check_entry_id(entry)
        turn = commit.turn
        if turn is not None and turn.id not in self._turns:
            has_entries = any(entry.turn == turn.id for entry in commit.entries)
            if not has_entries and self._find_turn_start(turn.id, path) is None:
                raise ValueError(f"turn {turn.id!r} has no entries: commit it together with its first entry")
        if commit.request is not None and turn is not None:
            key = self._keys.get(commit.request.key)
            if key is not None and key.turn != turn.id:
                raise RequestKeyTaken(commit.request.key)
        check_record_positions(commit.records, size + len(commit.entries))

    def apply(self, commit: Commit) -> None:
        """Apply a commit completely, or raise an exception and leave the tree unchanged."""
        self.check(commit)
        meta = None if commit.meta is None else to_utf8_json(commit.meta)
        entry_meta = {i: to_utf8_json(each) for i, each in commit.entry_meta.items()}
        if not self._branches:
            self.created = commit.at
        segment, size = self._find_append_point(commit)
        branch = self._branches.get(commit.branch)
        if branch is None or segment is None or size < segment.stop or self._is_visible_elsewhere(segment, commit):
            path = find_path(segment, segment.stop) if segment else []
            base = find_base(path, size, lambda each: each.has_own_records) if path else None
            segment = Segment(base, size)
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
            position = self._find_turn_start(commit.turn.id, find_path(segment, segment.stop)) or 0
            self._keys[commit.request.key] = KeyedTurnRef(commit.request, commit.branch, commit.turn.id, position)
        path = find_path(segment, segment.stop) if commit.records else []
        for placed in commit.records:
            is_own = kind_of(placed.record.kind).own_branch_only
            segment.has_own_records = segment.has_own_records or is_own
            attached_to = segment if is_own else find_segment(path, placed.position)
            self._records.append(AttachedRecord(attached_to, placed.position, placed.record))
        if meta is not None:
            self.meta = meta
        segment.metas.update({size + i: each for i, each in entry_meta.items()})

    def write(self, commit: Commit) -> BranchHead:
        """Apply a commit and return the new head of its branch."""
        self.apply(commit)
        return self._build_head(self._branches[commit.branch])

    def _find_append_point(self, commit: Commit) -> tuple[Segment | None, int]:
        """Return the segment that a commit continues, and how many entries of the segment's path the commit keeps.

        Returns None and 0 for a new branch without a source.
        """
        branch = self._branches.get(commit.branch)
        if branch is not None:
            segment, size = branch.segment, branch.segment.stop
        elif commit.source is not None:
            segment, size = self._branches[commit.source[0]].segment, commit.source[1]
        else:
            return None, 0
        return segment, size if commit.cut is None else commit.cut

    def _is_visible_elsewhere(self, segment: Segment, commit: Commit) -> bool:
        """Return whether a commit has records that only its own branch may see, but that another branch would see.

        That would happen if the commit were appended to `segment` and another branch forks off after such a record.
        """
        own = [placed.position for placed in commit.records if kind_of(placed.record.kind).own_branch_only]
        return bool(own) and any(each.base is segment and each.start > min(own) for each in self._segments)

    def find_end_after(self, commit: Commit) -> tuple[str | None, int]:
        """Return the id of the last entry and the number of entries that the branch's path would have after a commit.

        The id is None if the path would be empty.
        """
        segment, size = self._find_append_point(commit)
        last = commit.entries[-1].id if commit.entries else find_last_entry(find_path(segment, size))
        return last, size + len(commit.entries)

    def _append(self, segment: Segment, entries: Iterable[Entry]) -> None:
        turn = segment.entries[-1].turn if segment.entries else None
        for entry in entries:
            if entry.turn != turn and self._find_turn_start(entry.turn, find_path(segment, segment.stop)) is None:
                segment.turn_starts.append((segment.stop, entry.turn))
                self._turn_starts.setdefault(entry.turn, []).append((segment, segment.stop))
            segment.entries.append(entry)
            turn = entry.turn

    def _find_turn_start(self, turn: str, path: Path) -> int | None:
        """Return the position of a turn's first entry on a path, or None if the turn doesn't start on that path."""
        return next(
            (position for segment, position in self._turn_starts.get(turn, ()) if is_on_path(path, segment, position)),
            None,
        )

    def renew(self, branch: str, token: int, until: int) -> bool:
        found = self._branches.get(branch)
        if found is None or found.lease is None or found.lease.token != token:
            return False
        found.lease = msgspec.structs.replace(found.lease, until=until)
        return True

    def describe(self, meta: Mapping[str, Any], entry: str | None) -> bool:
        """Replace the app's metadata of an entry, or of the conversation if `entry` is None.

        Returns False if the entry doesn't exist.
        """
        data = to_utf8_json(meta)
        if entry is None:
            self.meta = data
            return True
        positions = list(self._find_entry(entry))
        for segment, position in positions:
            segment.metas[position] = data
        return bool(positions)

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

    def redact(self, entry: str, native: bytes) -> None:
        """Replace the JSON of an entry, and remove the entry's metadata and everything that may quote the entry.

        Each branch that contains the entry gets a new revision, so that a turn based on the old JSON can't be
        committed.
        """
        quoting = self.find_quoting_records(entry)
        self._records = [record for number, record in enumerate(self._records) if number not in quoting]
        for segment, position in self._find_entry(entry):
            i = position - segment.start
            segment.entries[i] = msgspec.structs.replace(segment.entries[i], native=native)
            segment.words.pop(position, None)
            segment.metas.pop(position, None)
        self._turns = {name: redact_turn(turn) for name, turn in self._turns.items()}
        for key, ref in self._keys.items():
            if ref.turn == get_turn_id(entry):
                self._keys[key] = ref._replace(request=KeyedRequest(key, ""))
        self.bump_revisions(entry)

    def bump_revisions(self, entry: str) -> None:
        """Increase the revision of each branch that has this entry on its path."""
        positions = list(self._find_entry(entry))
        for branch in self._branches.values():
            if any(is_on_path(find_path(branch.segment, branch.segment.stop), *node) for node in positions):
                branch.revision += 1

    def has_entry(self, entry: str) -> bool:
        return any(True for _ in self._find_entry(entry))

    def _find_entry(self, entry: str) -> Iterator[tuple[Segment, int]]:
        """Yield the segment and position of each entry with this id."""
        for segment in self._segments:
            for position, stored in enumerate(segment.entries, segment.start):
                if stored.id == entry:
                    yield segment, position

    # Reading

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

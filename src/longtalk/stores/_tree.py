"""The effect of commits, redactions and other changes on the tree of a conversation in memory.

A commit also starts a new segment if it adds a record that only its own branch may see and another branch forks off
after the record's position; otherwise the other branch would see the record. This module does no I/O and takes no
locks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from longtalk.stores._paths import find_base, find_segment, is_on_path
from longtalk.stores._redaction import get_turn_id, redact_turn
from longtalk.stores._rows import to_utf8_json
from longtalk.stores._segments import (
    AttachedRecord,
    Branch,
    KeyedTurnRef,
    Segment,
    find_last_entry,
    find_path,
)
from longtalk.stores._tree_reading import ReadableTree
from longtalk.stores.base import (
    BranchHead,
    Commit,
    HeadMoved,
    KeyedRequest,
    RequestKeyTaken,
)
from longtalk.stores.checks import check_commit, check_entry_id, check_parents, check_record_positions
from longtalk.transcript.pack import Entry
from longtalk.transcript.record_kinds import kind_of


class ConversationTree(ReadableTree):
    """A conversation with its branches, entries, turns and records. Its methods mirror those of `Store`."""

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

"""Plan commits that do more than append to the end of a branch (see `commit.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from longtalk.stores._paths import Span, find_base, find_segment, is_on_path
from longtalk.stores._rows import to_utf8_json
from longtalk.stores.base import BranchHead, Commit, HeadMoved, RequestKeyTaken
from longtalk.stores.checks import check_commit, check_parents, check_record_positions
from longtalk.stores.redis.command import Command
from longtalk.stores.redis.commit import Changes, find_runs, parse_number
from longtalk.stores.redis.connection import Client
from longtalk.stores.redis.scripts import HEAD, MARK_SIZE, MAX_MARKS
from longtalk.stores.redis.tree import (
    Branch,
    Keys,
    RecordLocation,
    Tree,
    decode_entry_id,
    decode_head,
    decode_locations,
    decode_request,
    decode_runs,
    decode_turn_start,
    encode,
    encode_entry,
    encode_request,
    is_own_branch_only,
    select_head_records,
)
from longtalk.transcript.record_kinds import kind_of

PAGE = 100
"""The number of turns read per request."""


class CommitPlanner:
    """A planner that computes the changes for a commit that the script `WRITE` can't apply by itself."""

    def __init__(self, client: Client, keys: Keys, tree: Tree, commit: Commit, mark: bytes) -> None:
        self._client = client
        self._keys = keys
        self._tree = tree
        self._commit = commit
        self._mark = mark
        self._changes = Changes(keys, tree)

    def _read(self, name: str, key: bytes, *arguments: Any) -> Any:
        return self._client.read(Command(name, arguments, [key]))[0]

    def _make_head_moved(self, branch: str | None) -> HeadMoved:
        """Return a `HeadMoved` with the current head of a branch, including the head's records."""
        if branch is None:
            return HeadMoved(None)
        reply = self._client.read(Command(HEAD, [branch], self._keys.all))[0]
        return HeadMoved(decode_head(branch, reply) if reply else None)

    def build_changes(self) -> Changes:
        """Return the changes that apply the commit. See `Store.write` for the exceptions."""
        tree, commit, keys = self._tree, self._commit, self._keys
        branch = tree.branches.get(commit.branch)
        source = tree.branches.get(commit.source[0]) if commit.source else None
        try:
            check_commit(self._build_head(branch), commit, self._build_head(source))
        except HeadMoved as moved:
            raise self._make_head_moved(moved.head.branch if moved.head else None) from None
        origin = branch or source
        uncut = branch.size if branch else commit.source[1] if commit.source else 0
        size = uncut if commit.cut is None else commit.cut
        if source and not branch and commit.source_entry not in (None, self._read_last_entry_id(source, uncut)):
            raise self._make_head_moved(source.name)
        before = self._read_last_entry_id(origin, size) if origin else None
        check_parents(before, commit.entries)
        end = size + len(commit.entries)
        check_record_positions(commit.records, end)

        locations = decode_locations(self._read("HGETALL", keys.locations))
        segment, start, is_new = self._choose_segment(branch, origin, size)
        path = [*self._trace_stored_path(segment, size), *([] if not is_new else [Span(segment, start, end)])]
        path[-1] = path[-1]._replace(stop=end)
        new_turns = self._append_entries(segment, start, size, before, path)
        had_entries = self._store_turn(path, new_turns)
        self._store_request(path, new_turns)
        new_locations, are_shared = self._store_records(segment, path)
        locations += new_locations
        if branch and not is_new:
            records = self._update_head_records(branch.records, locations, new_locations)
        else:
            records = select_head_records(locations, path)
        last_turn = self._find_last_turn(path, new_turns)
        if are_shared or had_entries:
            for name in tree.branches:
                if name != commit.branch:
                    other_path = tree.find_branch_path(name)
                    other_records = " ".join(map(str, select_head_records(locations, other_path)))
                    other_turn = self._find_last_turn(other_path, {})
                    self._changes.add("HSET", keys.conversation, f"p:{name}", other_records, f"u:{name}", other_turn)
        self._store_branch(branch, segment, start, end, before, last_turn, records)
        return self._changes

    def _build_head(self, branch: Branch | None) -> BranchHead | None:
        return self._tree.build_head(branch, None) if branch else None

    def _read_last_entry_id(self, branch: Branch, size: int) -> str | None:
        """Return the id of the last of a branch's first `size` entries, or None if `size` is 0."""
        if size == branch.size:
            return branch.entry
        for span in reversed(self._tree.trace_path(branch.segment, size)):
            if span.start < span.stop:
                value = self._read("LINDEX", self._keys.get_entries_key(span.segment), span.stop - 1 - span.start)
                return decode_entry_id(value) if value else None
        return None

    def _trace_stored_path(self, segment: int, size: int) -> list[Span[int]]:
        """Return the path of `size` entries that ends in `segment`. If this plan creates that segment, leave it out."""
        new = self._new if segment not in self._tree.segments else None
        return self._tree.trace_path(*new) if new else self._tree.trace_path(segment, size)

    def _choose_segment(self, branch: Branch | None, origin: Branch | None, size: int) -> tuple[int, int, bool]:
        """Return the segment that the commit appends to, the segment's start, and whether the segment is new."""
        own = [placed.position for placed in self._commit.records if is_own_branch_only(placed)]
        if branch is not None and size == branch.size:
            current = self._tree.segments[branch.segment]
            if not own or current.last_fork <= min(own):
                return current.number, current.start, False
        segments = self._tree.segments
        path = self._tree.trace_path(origin.segment, origin.size) if origin else []
        base = find_base(path, size, lambda each: segments[each].has_own_records) if path else 0
        number = self._tree.get_number("segments") + 1
        self._new = (base, size)
        self._changes.add("HSET", self._keys.conversation, "segments", number, f"S:{number}", f"{base}:{size}")
        if base and segments[base].last_fork < size:
            self._changes.add("HSET", self._keys.conversation, f"F:{base}", size)
        return number, size, True

    def _append_entries(
        self, segment: int, start: int, size: int, before: str | None, path: list[Span[int]]
    ) -> dict[str, int]:
        """Append the commit's entries. Return the positions at which turns begin among them, by turn id."""
        entries, keys = self._commit.entries, self._keys
        if not entries:
            return {}
        rows = [encode_entry(entry, parse_number(entry)) for entry in entries]
        self._changes.add("RPUSH", keys.get_entries_key(segment), *rows)
        new_turns: dict[str, int] = {}
        runs: dict[str, bytes] = {}
        for i, turn, number in find_runs(before if size > start else None, entries):
            if turn not in runs:
                runs[turn] = self._read("HGET", keys.runs, turn) or b""
            if turn not in new_turns and self._find_turn_start(runs[turn], path) is None:
                new_turns[turn] = size + i
                self._changes.add("ZADD", keys.turn_starts, size + i, f"{segment}:{size + i}:{turn}")
            runs[turn] = b"%s %d:%d:%d" % (runs[turn], segment, size + i, number)
        for turn, value in runs.items():
            self._changes.add("HSET", keys.runs, turn, value.strip())
        for i, meta in self._commit.entry_meta.items():
            self._changes.add("HSET", keys.metas, f"{segment}:{size + i}", to_utf8_json(meta))
        return new_turns

    def _find_turn_start(self, runs: bytes | None, path: Sequence[Span[int]]) -> int | None:
        """Return the position at which the turn with these runs begins on a path, or None if it isn't on the path."""
        return min(
            (position for segment, position, _ in decode_runs(runs) if is_on_path(path, segment, position)),
            default=None,
        )

    def _store_turn(self, path: Sequence[Span[int]], new_turns: dict[str, int]) -> bool:
        """Store the commit's turn. Return whether entries of the turn were stored before it.

        In that case, other branches may contain these entries too.
        """
        turn, keys = self._commit.turn, self._keys
        if turn is None:
            return False
        runs = self._read("HGET", keys.runs, turn.id)
        is_known = self._read("HEXISTS", keys.turns, turn.id)
        if not is_known and turn.id not in new_turns and self._find_turn_start(runs, path) is None:
            raise ValueError(f"turn {turn.id!r} has no entries: commit it together with its first entry")
        self._changes.add("HSET", keys.turns, turn.id, encode(turn))
        if self._commit.manifest:
            self._changes.add("HSET", keys.manifests, turn.id, self._commit.manifest)
        return not is_known and runs is not None

    def _store_request(self, path: Sequence[Span[int]], new_turns: dict[str, int]) -> None:
        """Store the request's idempotency key. Raise `RequestKeyTaken` if another turn has this key."""
        request, turn, keys = self._commit.request, self._commit.turn, self._keys
        if request is None or turn is None:
            return
        stored = self._read("HGET", keys.requests, request.key)
        if stored:
            if decode_request(request.key, stored)[1] != turn.id:
                raise RequestKeyTaken(request.key)
            return
        position = new_turns.get(turn.id)
        if position is None:
            position = self._find_turn_start(self._read("HGET", keys.runs, turn.id), path) or 0
        data = encode_request(request, turn.id, self._commit.branch)
        self._changes.add("HSET", keys.requests, request.key, b"%d:%s" % (position, data))

    def _store_records(self, segment: int, path: Sequence[Span[int]]) -> tuple[list[RecordLocation], bool]:
        """Store the commit's records. Return their locations, and whether any is on the path of another branch."""
        commit, keys = self._commit, self._keys
        locations: list[RecordLocation] = []
        if not commit.records:
            return locations, False
        number = self._tree.get_number("records")
        for placed in commit.records:
            number += 1
            position, kind = placed.position, placed.record.kind
            attached_to = segment if is_own_branch_only(placed) else find_segment(path, position)
            locations.append(RecordLocation(number, attached_to, position, kind))
            self._changes.add("HSET", keys.records, number, encode(placed.record))
            self._changes.add("HSET", keys.locations, number, f"{attached_to}:{position}:{kind}")
        if any(map(is_own_branch_only, commit.records)):
            self._changes.add("HSET", keys.conversation, f"O:{segment}", 1)
        self._changes.add("HSET", keys.conversation, "records", number)
        others = [self._tree.find_branch_path(name) for name in self._tree.branches if name != commit.branch]
        are_shared = any(is_on_path(path, each.segment, each.position) for path in others for each in locations)
        return locations, are_shared

    def _update_head_records(
        self, current: Sequence[int], locations: Sequence[RecordLocation], new: Sequence[RecordLocation]
    ) -> list[int]:
        """Return the numbers of the records in the new head.

        `current` are the numbers of the records in the current head, `locations` are the locations of all records, and
        `new` are the locations of the commit's records.
        """
        obsolete = self._find_obsolete(current) if self._commit.obsolete else set()
        kinds = {location.number: location.kind for location in locations}
        numbers = [number for number in current if number in kinds and number not in obsolete]
        for location in new:
            if kind_of(location.kind).newest_only:
                numbers = [number for number in numbers if kinds[number] != location.kind]
            numbers.append(location.number)
        return numbers

    def _find_obsolete(self, numbers: Sequence[int]) -> set[int]:
        """Return those of the record `numbers` that the commit declares obsolete."""
        records = self._read("HMGET", self._keys.records, *numbers) if numbers else []
        obsolete = {encode(record) for record in self._commit.obsolete}
        return {number for number, data in zip(numbers, records, strict=True) if data in obsolete}

    def _find_last_turn(self, path: Sequence[Span[int]], new_turns: dict[str, int]) -> str:
        """Return the id of the last turn that begins on a path, or an empty string if no turn does.

        A turn counts if it is stored or if the commit stores it.
        """
        own = self._commit.turn.id if self._commit.turn else None
        for turn in sorted(new_turns, key=new_turns.__getitem__, reverse=True):
            if turn == own or self._read("HEXISTS", self._keys.turns, turn):
                return turn
        stop: Any = f"({path[-1].stop}" if path else "-inf"
        skip = 0
        while page := self._read("ZREVRANGEBYSCORE", self._keys.turn_starts, stop, "-inf", "LIMIT", skip, PAGE):
            skip += PAGE
            turns = [
                turn for segment, position, turn in map(decode_turn_start, page) if is_on_path(path, segment, position)
            ]
            stored = self._read("HMGET", self._keys.turns, *turns) if turns else []
            for turn, data in zip(turns, stored, strict=True):
                if data is not None or turn == own:
                    return turn
        return ""

    def _store_branch(
        self,
        branch: Branch | None,
        segment: int,
        start: int,
        end: int,
        before: str | None,
        turn: str,
        records: Sequence[int],
    ) -> None:
        """Set the stored fields of the branch and of its conversation."""
        commit, keys = self._commit, self._keys
        lease = commit.lease
        token = max(branch.token if branch else 0, lease.token if lease else 0)
        marks = (branch.marks if branch else b"")[-MARK_SIZE * (MAX_MARKS - 1) :] + self._mark
        entry = commit.entries[-1].id if commit.entries else before or ""
        lease_values = (encode(lease.holder), lease.until, lease.token) if lease else ("", 0, "")
        values = (
            *(commit.expect + 1, segment, start, end, entry, turn, " ".join(map(str, records)), token),
            *(*lease_values, commit.at, marks),
        )
        # The letters are described in `scripts.py`.
        letters = zip("vsbneupklijaw", values, strict=True)
        fields = [part for letter, value in letters for part in (f"{letter}:{commit.branch}", value)]
        updated = max(commit.at, self._tree.get_number("updated"))
        self._changes.add("HSET", keys.conversation, *fields, "updated", updated)
        self._changes.add("HINCRBY", keys.conversation, "entries", len(commit.entries))
        if commit.meta is not None:
            self._changes.add("HSET", keys.conversation, "meta", to_utf8_json(commit.meta))

    def mark_hot(self, nonce: bytes) -> None:
        """Mark the conversation as hot in its own hash, with this nonce (see `lists.py`)."""
        self._changes.add("HSET", self._keys.conversation, "hot", nonce)

"""How the Redis store applies a commit.

A commit that appends to the end of a branch is one script on the server, in one round trip. Any other commit (a fork, a
cut, a record that other branches see, a turn that is stored later than its entries) needs a *plan*: the store reads the
data that the commit depends on, computes the changes in this process, and sends a script that applies them only if the
conversation hasn't changed since.

If the reply to a commit is lost, the commit is sent again. Each commit has a random mark, and each branch remembers its
newest marks, so a commit that was already applied is neither applied twice nor reported as failed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from longtalk.stores._paths import Span, find_base, find_segment, is_on_path
from longtalk.stores._rows import to_utf8_json
from longtalk.stores.base import (
    BranchHead,
    Commit,
    HeadMoved,
    RequestKeyTaken,
    check_commit,
    check_entry_id,
    check_parents,
)
from longtalk.stores.redis.connection import Command, Link
from longtalk.stores.redis.scripts import APPLY, HEAD, MARK, MARKS
from longtalk.stores.redis.tree import (
    About,
    Branch,
    Keys,
    Tree,
    abouts_of,
    begun_of,
    encode,
    head_of,
    id_of,
    is_alone,
    request_in,
    request_of,
    row_in,
    runs_of,
    shown_on,
)
from longtalk.transcript.pack import Entry
from longtalk.transcript.pack_index import MAX_COUNT
from longtalk.transcript.record_kinds import kind_of

PAGE = 100
"""The number of turns read per request."""
MOST = 1000
"""The maximum number of arguments of one command, because Lua limits the number of arguments of a call."""

Run = tuple[int, str, int]
"""A sequence of entries of one turn with consecutive numbers.

The values are the index of its first entry in the commit, the turn's id, and the number of that entry within the turn.
"""


def new_mark() -> bytes:
    """Return new random bytes that identify a commit."""
    return os.urandom(MARK)


def number_of(entry: Entry) -> int:
    """Return the number of an entry within its turn.

    Raises `ValueError` if the entry's id, time or token count is invalid.
    """
    check_entry_id(entry)
    if not 0 <= entry.tokens <= MAX_COUNT or not 0 <= entry.at <= MAX_COUNT:
        raise ValueError(f"a number of {entry.id!r} is out of range")
    return int(entry.id[len(entry.turn) + 1 :])


def runs_in(before: str | None, entries: Sequence[Entry]) -> Iterator[Run]:
    """Yield each run that starts among these entries.

    `before` is the id of the entry before the first of them. Entries that continue its run don't start a new run.
    """
    following = None
    if before is not None:
        turn, _, count = before.rpartition("-")
        following = turn, int(count) + 1
    for i, entry in enumerate(entries):
        number = number_of(entry)
        if (entry.turn, number) != following:
            yield i, entry.turn, number
        following = entry.turn, number + 1


def arguments(commit: Commit, *, segment: int, mark: bytes, hot: bytes, gen: bytes) -> list[Any]:
    """Return the arguments with which the script `WRITE` applies a commit."""
    entries, lease, turn, request = commit.entries, commit.lease, commit.turn, commit.request
    if entries:
        check_parents(entries[0].parent, entries)
    told: list[Any] = [
        *(commit.branch, commit.expect, segment, mark, commit.at, "" if commit.cut is None else commit.cut),
        *(hot, gen, os.urandom(8), b"" if commit.meta is None else to_utf8_json(commit.meta)),
        *((encode(lease.holder), lease.until, lease.token) if lease else ("", 0, "")),
        *((entries[0].parent or "", entries[-1].id) if entries else ("", "")),
        *(len(entries), *[row_in(entry, number_of(entry)) for entry in entries]),
    ]
    runs = list(runs_in(entries[0].parent, entries)) if entries else []
    told += [len(runs), *[part for run in runs for part in run]]
    told += [1, turn.id, encode(turn), commit.manifest] if turn else [0]
    told += [1, request.key, request_in(request, turn.id, commit.branch)] if request and turn else [0]
    told.append(len(commit.records))
    for placed in commit.records:
        kind = placed.record.kind
        about = kind_of(kind)
        flags = [int(each) for each in (about.newest_only, about.may_discard_replaced, about.own_branch_only)]
        told += [placed.position, kind, encode(placed.record), *flags]
    told += [len(commit.obsolete), *map(encode, commit.obsolete)]
    told.append(len(commit.entry_meta))
    for i, meta in commit.entry_meta.items():
        told += [i, to_utf8_json(meta)]
    return told


class Changes:
    """Commands that one script runs together, if the conversation hasn't changed since its tree was read."""

    def __init__(self, keys: Keys, tree: Tree) -> None:
        self._keys = list(keys.all)
        self._relies = tree.born, tree.version
        self._told: list[Any] = []

    def add(self, name: str, key: bytes, *arguments: Any) -> None:
        """Add a command. Split it into several commands if it has more than `MOST` arguments."""
        if key not in self._keys:
            self._keys.append(key)
        for start in range(0, len(arguments) or 1, MOST):
            some = arguments[start : start + MOST]
            self._told += [name, self._keys.index(key) + 1, len(some), *some]

    def command(self, branch: str = "") -> Command:
        """Return the call to the script that applies the changes and replies with the head of `branch`.

        The call also increments the conversation's version, unless it deletes the conversation.
        """
        if "DEL" not in self._told:
            self.add("HINCRBY", self._keys[0], "version", 1)
        return Command(APPLY, [*self._relies, branch, *self._told], self._keys)


class Plan:
    """The computation of the changes for a commit that the script `WRITE` can't apply by itself."""

    def __init__(self, link: Link, keys: Keys, tree: Tree, commit: Commit, mark: bytes) -> None:
        self._link = link
        self._keys = keys
        self._tree = tree
        self._commit = commit
        self._mark = mark
        self._changes = Changes(keys, tree)

    def _read(self, name: str, key: bytes, *arguments: Any) -> Any:
        return self._link.read(key, Command(name, arguments, [key]))[0]

    def _moved(self, branch: str | None) -> HeadMoved:
        if branch is None:
            return HeadMoved(None)
        found = self._link.read(self._keys.c, Command(HEAD, [branch], self._keys.all))[0]
        return HeadMoved(head_of(branch, found) if found else None)

    def make(self) -> Changes:
        """Return the changes that apply the commit. Raise the exceptions that `Store.write` documents."""
        tree, commit, keys = self._tree, self._commit, self._keys
        branch = tree.branches.get(commit.branch)
        source = tree.branches.get(commit.source[0]) if commit.source else None
        try:
            check_commit(self._head(branch), commit, self._head(source))
        except HeadMoved as moved:
            raise self._moved(moved.head.branch if moved.head else None) from None
        origin = branch or source
        begin = origin.size if branch and origin else commit.source[1] if commit.source else 0
        size = begin if commit.cut is None else commit.cut
        if source and not branch and commit.source_entry not in (None, self._last(source, begin)):
            raise self._moved(source.name)
        before = self._last(origin, size) if origin else None
        check_parents(before, commit.entries)
        end = size + len(commit.entries)
        if any(not -1 <= placed.position < end for placed in commit.records):
            raise ValueError("a record can't hold up to an entry that is not there")

        abouts = abouts_of(self._read("HGETALL", keys.h))
        segment, start, is_new = self._segment(branch, origin, size)
        path = [*self._path(segment, size), *([] if not is_new else [Span(segment, start, end)])]
        path[-1] = path[-1]._replace(stop=end)
        begins = self._append(segment, start, size, before, path)
        late = self._turn(path, begins)
        self._ask(path, begins)
        made, shared = self._records(segment, path)
        keeps = branch is not None and not is_new
        records = self._shown(branch.records, abouts, made) if branch and keeps else shown_on([*abouts, *made], path)
        last = self._turn_on(path, begins)
        if shared or late:
            for name, other in tree.branches.items():
                if name != commit.branch:
                    theirs = tree.path(other.segment, other.size)
                    seen = " ".join(map(str, shown_on([*abouts, *made], theirs)))
                    turned = self._turn_on(theirs, {})
                    self._changes.add("HSET", keys.c, f"p:{name}", seen, f"u:{name}", turned)
        self._row(branch, segment, start, end, before, last, records)
        return self._changes

    def _head(self, branch: Branch | None) -> BranchHead | None:
        return self._tree.head(branch, None) if branch else None

    def _last(self, branch: Branch, size: int) -> str | None:
        """Return the id of the last of a branch's first `size` entries, or None if `size` is 0."""
        if size == branch.size:
            return branch.entry
        for span in reversed(self._tree.path(branch.segment, size)):
            if span.start < span.stop:
                value = self._read("LINDEX", self._keys.entries(span.segment), span.stop - 1 - span.start)
                return id_of(value) if value else None
        return None

    def _path(self, segment: int, size: int) -> list[Span[int]]:
        """Return the stored part of the path that ends in `segment`. This plan may have created that segment."""
        held = self._new if segment not in self._tree.segments else None
        return self._tree.path(held[0], held[1]) if held else self._tree.path(segment, size)

    def _segment(self, branch: Branch | None, origin: Branch | None, size: int) -> tuple[int, int, bool]:
        """Return the segment to which the commit appends, the position at which it starts, and whether it is new."""
        own = [placed.position for placed in self._commit.records if is_alone(placed)]
        if branch is not None and size == branch.size:
            held = self._tree.segments[branch.segment]
            if not own or held.forked <= min(own):
                return held.number, held.start, False
        segments = self._tree.segments
        path = self._tree.path(origin.segment, origin.size) if origin else []
        up = segments[find_base(path, size, lambda each: segments[each].own)] if path else None
        number = self._tree.number("segments") + 1
        self._new = (up.number if up else 0, size)
        self._changes.add("HSET", self._keys.c, "segments", number, f"S:{number}", f"{up.number if up else 0}:{size}")
        if up is not None and up.forked < size:
            self._changes.add("HSET", self._keys.c, f"F:{up.number}", size)
        return number, size, True

    def _append(self, segment: int, start: int, size: int, before: str | None, path: list[Span[int]]) -> dict[str, int]:
        """Append the commit's entries. Return the positions of the turns that begin with these entries, by turn id."""
        entries, keys = self._commit.entries, self._keys
        if not entries:
            return {}
        rows = [row_in(entry, number_of(entry)) for entry in entries]
        self._changes.add("RPUSH", keys.entries(segment), *rows)
        begins: dict[str, int] = {}
        held: dict[str, bytes] = {}
        for i, turn, number in runs_in(before if size > start else None, entries):
            if turn not in held:
                held[turn] = self._read("HGET", keys.g, turn) or b""
            if turn not in begins and self._begun(held[turn], path) is None:
                begins[turn] = size + i
                self._changes.add("ZADD", keys.f, size + i, f"{segment}:{size + i}:{turn}")
            held[turn] = b"%s %d:%d:%d" % (held[turn], segment, size + i, number)
        for turn, runs in held.items():
            self._changes.add("HSET", keys.g, turn, runs.strip())
        for i, meta in self._commit.entry_meta.items():
            self._changes.add("HSET", keys.x, f"{segment}:{size + i}", to_utf8_json(meta))
        return begins

    def _begun(self, runs: bytes | None, path: Sequence[Span[int]]) -> int | None:
        """Return the position at which a turn with these runs begins on a path, or None if it doesn't begin there."""
        return min(
            (position for segment, position, _ in runs_of(runs) if is_on_path(path, segment, position)), default=None
        )

    def _turn(self, path: Sequence[Span[int]], begins: dict[str, int]) -> bool:
        """Store the commit's turn. Return whether entries of the turn were stored before it.

        In that case, other branches may contain these entries too.
        """
        turn, keys = self._commit.turn, self._keys
        if turn is None:
            return False
        runs = self._read("HGET", keys.g, turn.id)
        is_known = self._read("HEXISTS", keys.t, turn.id)
        if not is_known and turn.id not in begins and self._begun(runs, path) is None:
            raise ValueError(f"the turn {turn.id!r} can't begin without an entry")
        self._changes.add("HSET", keys.t, turn.id, encode(turn))
        if self._commit.manifest:
            self._changes.add("HSET", keys.m, turn.id, self._commit.manifest)
        return not is_known and runs is not None

    def _ask(self, path: Sequence[Span[int]], begins: dict[str, int]) -> None:
        """Store the request's idempotency key. Raise `RequestKeyTaken` if another turn has this key."""
        request, turn, keys = self._commit.request, self._commit.turn, self._keys
        if request is None or turn is None:
            return
        held = self._read("HGET", keys.q, request.key)
        if held:
            if request_of(request.key, held)[1] != turn.id:
                raise RequestKeyTaken(request.key)
            return
        position = begins.get(turn.id)
        if position is None:
            position = self._begun(self._read("HGET", keys.g, turn.id), path) or 0
        data = request_in(request, turn.id, self._commit.branch)
        self._changes.add("HSET", keys.q, request.key, b"%d:%s" % (position, data))

    def _records(self, segment: int, path: Sequence[Span[int]]) -> tuple[list[About], bool]:
        """Store the commit's records. Return their locations, and whether another branch's path contains any."""
        commit, keys = self._commit, self._keys
        made: list[About] = []
        if not commit.records:
            return made, False
        number = self._tree.number("records")
        for placed in commit.records:
            number += 1
            held = segment if is_alone(placed) else find_segment(path, placed.position)
            about = About(number, held, placed.position, placed.record.kind)
            made.append(about)
            self._changes.add("HSET", keys.r, number, encode(placed.record))
            self._changes.add("HSET", keys.h, number, f"{held}:{placed.position}:{placed.record.kind}")
        if any(map(is_alone, commit.records)):
            self._changes.add("HSET", keys.c, f"O:{segment}", 1)
        self._changes.add("HSET", keys.c, "records", number)
        others = [self._tree.path_of(name) for name in self._tree.branches if name != commit.branch]
        return made, any(is_on_path(theirs, about.segment, about.position) for theirs in others for about in made)

    def _shown(self, before: Sequence[int], abouts: Sequence[About], made: Sequence[About]) -> list[int]:
        """Return the numbers of the records in the new head. `before` contains those in the current head."""
        gone = self._gone(before) if self._commit.obsolete else set()
        kinds = {about.number: about.kind for about in (*abouts, *made)}
        left = [number for number in before if number in kinds and number not in gone]
        for about in made:
            if kind_of(about.kind).newest_only:
                left = [number for number in left if kinds[number] != about.kind]
            left.append(about.number)
        return left

    def _gone(self, before: Sequence[int]) -> set[int]:
        """Return those numbers in `before` whose records the commit declares obsolete."""
        held = self._read("HMGET", self._keys.r, *before) if before else []
        done = {encode(record) for record in self._commit.obsolete}
        return {number for number, data in zip(before, held, strict=True) if data in done}

    def _turn_on(self, path: Sequence[Span[int]], begins: dict[str, int]) -> str:
        """Return the id of the last stored turn that begins on a path, or an empty string if no turn does."""
        made = self._commit.turn.id if self._commit.turn else None
        for turn in sorted(begins, key=begins.__getitem__, reverse=True):
            if turn == made or self._read("HEXISTS", self._keys.t, turn):
                return turn
        stop: Any = f"({path[-1].stop}" if path else "-inf"
        skip = 0
        while page := self._read("ZREVRANGEBYSCORE", self._keys.f, stop, "-inf", "LIMIT", skip, PAGE):
            skip += PAGE
            turns = [turn for segment, position, turn in map(begun_of, page) if is_on_path(path, segment, position)]
            held = self._read("HMGET", self._keys.t, *turns) if turns else []
            for turn, data in zip(turns, held, strict=True):
                if data is not None or turn == made:
                    return turn
        return ""

    def _row(
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
        marks = (branch.marks if branch else b"")[-MARK * (MARKS - 1) :] + self._mark
        entry = commit.entries[-1].id if commit.entries else before or ""
        held = (encode(lease.holder), lease.until, lease.token) if lease else ("", 0, "")
        values = (
            *(commit.expect + 1, segment, start, end, entry, turn, " ".join(map(str, records)), token),
            *(*held, commit.at, marks),
        )
        fields = [part for letter, value in zip("vsbneupklijaw", values, strict=True) for part in (letter, value)]
        fields[::2] = [f"{letter}:{commit.branch}" for letter in fields[::2]]
        self._changes.add("HSET", keys.c, *fields, "updated", max(commit.at, self._tree.number("updated")))
        self._changes.add("HINCRBY", keys.c, "entries", len(commit.entries))
        if commit.meta is not None:
            self._changes.add("HSET", keys.c, "meta", to_utf8_json(commit.meta))

    def heat(self, nonce: bytes) -> None:
        """Mark the conversation as hot in its own hash, with this nonce (see `lists.py`)."""
        self._changes.add("HSET", self._keys.c, "hot", nonce)

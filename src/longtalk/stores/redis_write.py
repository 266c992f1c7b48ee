"""What a commit does to a store in Redis.

A commit that goes on at the end of a branch is one script on the server, in one round trip. Anything else (a fork, a
cut, a record that other branches see, a turn that comes later than its entries) is a *plan*: what is needed is read,
the changes are worked out here, and a script makes them if nothing has changed meanwhile.

An answer may be lost on its way, and the commit is sent again then. Each one has a mark, and a branch remembers the
newest of them, so that one that is there is not made twice, nor said to have failed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from longtalk.pack import MAX_COUNT, Entry
from longtalk.stores.base import (
    ALONE,
    BRIEF,
    REPLACED,
    Commit,
    Head,
    KeyTaken,
    Moved,
    checked,
    linked,
    numbered,
)
from longtalk.stores.ledger import plain
from longtalk.stores.redis_link import Command, Link
from longtalk.stores.redis_scripts import APPLY, HEAD, MARK, MARKS
from longtalk.stores.redis_tree import (
    About,
    Branch,
    Keys,
    Span,
    Tree,
    abouts_of,
    begun_of,
    encode,
    head_of,
    id_of,
    is_alone,
    on,
    request_in,
    request_of,
    row_in,
    runs_of,
    shown,
)

PAGE = 100
MOST = 1000
"""Arguments of one command: Lua takes no endless lists."""

Run = tuple[int, str, int]
"""Neighbours of one turn: the number of the first among the entries of a commit, the turn, its number in that."""


def new_mark() -> bytes:
    return os.urandom(MARK)


def number_of(entry: Entry) -> int:
    """The number of an entry in its turn."""
    numbered(entry)
    if not 0 <= entry.tokens <= MAX_COUNT or not 0 <= entry.at <= MAX_COUNT:
        raise ValueError(f"a number of {entry.id!r} is out of range")
    return int(entry.id[len(entry.turn) + 1 :])


def runs_in(before: str | None, entries: Sequence[Entry]) -> Iterator[Run]:
    """Where runs begin among entries, behind the one with this id."""
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
    """What the script is told of a commit."""
    entries, lease, turn, request = commit.entries, commit.lease, commit.turn, commit.request
    if entries:
        linked(entries[0].parent, entries)
    told: list[Any] = [
        *(commit.branch, commit.expect, segment, mark, commit.at, "" if commit.cut is None else commit.cut),
        *(hot, gen, os.urandom(8), b"" if commit.meta is None else plain(commit.meta)),
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
        flags = [int(kind in kinds) for kinds in (REPLACED, BRIEF, ALONE)]
        told += [placed.place, kind, encode(placed.record), *flags]
    told += [len(commit.done), *map(encode, commit.done)]
    told.append(len(commit.entry_meta))
    for i, meta in commit.entry_meta.items():
        told += [i, plain(meta)]
    return told


class Changes:
    """Commands that a script carries out together, if nothing has changed since a tree was read."""

    def __init__(self, keys: Keys, tree: Tree) -> None:
        self._keys = list(keys.all)
        self._relies = tree.born, tree.version
        self._told: list[Any] = []

    def add(self, name: str, key: bytes, *arguments: Any) -> None:
        """One command; one that takes any number of values is made several, where they are many."""
        if key not in self._keys:
            self._keys.append(key)
        for start in range(0, len(arguments) or 1, MOST):
            some = arguments[start : start + MOST]
            self._told += [name, self._keys.index(key) + 1, len(some), *some]

    def command(self, branch: str = "") -> Command:
        if "DEL" not in self._told:
            self.add("HINCRBY", self._keys[0], "version", 1)
        return Command(APPLY, [*self._relies, branch, *self._told], self._keys)


class Plan:
    """Works out what a commit changes."""

    def __init__(self, link: Link, keys: Keys, tree: Tree, commit: Commit, mark: bytes) -> None:
        self._link = link
        self._keys = keys
        self._tree = tree
        self._commit = commit
        self._mark = mark
        self._changes = Changes(keys, tree)

    def _read(self, name: str, key: bytes, *arguments: Any) -> Any:
        return self._link.read(key, Command(name, arguments, [key]))[0]

    def _moved(self, branch: str | None) -> Moved:
        if branch is None:
            return Moved(None)
        found = self._link.read(self._keys.c, Command(HEAD, [branch], self._keys.all))[0]
        return Moved(head_of(branch, found) if found else None)

    def make(self) -> Changes:
        """The changes. Raises what `Store.write` says."""
        tree, commit, keys = self._tree, self._commit, self._keys
        branch = tree.branches.get(commit.branch)
        source = tree.branches.get(commit.source[0]) if commit.source else None
        try:
            checked(self._head(branch), commit, self._head(source))
        except Moved as moved:
            raise self._moved(moved.head.branch if moved.head else None) from None
        origin = branch or source
        begin = origin.size if branch and origin else commit.source[1] if commit.source else 0
        size = begin if commit.cut is None else commit.cut
        if source and not branch and commit.behind not in (None, self._last(source, begin)):
            raise self._moved(source.name)
        before = self._last(origin, size) if origin else None
        linked(before, commit.entries)
        end = size + len(commit.entries)
        if any(not -1 <= placed.place < end for placed in commit.records):
            raise ValueError("a record can't hold up to an entry that is not there")

        abouts = abouts_of(self._read("HGETALL", keys.h))
        segment, start, is_new = self._segment(branch, origin, size)
        path = [*self._path(segment, size), *([] if not is_new else [Span(segment, start, end, start)])]
        path[-1] = path[-1]._replace(stop=end)
        begins = self._append(segment, start, size, before, path)
        late = self._turn(path, begins)
        self._ask(path, begins)
        made, shared = self._records(segment, path)
        keeps = branch is not None and not is_new
        records = self._shown(branch.records, abouts, made) if branch and keeps else shown([*abouts, *made], path)
        last = self._turn_on(path, begins)
        if shared or late:
            for name, other in tree.branches.items():
                if name != commit.branch:
                    theirs = tree.path(other.segment, other.size)
                    seen = " ".join(map(str, shown([*abouts, *made], theirs)))
                    turned = self._turn_on(theirs, {})
                    self._changes.add("HSET", keys.c, f"p:{name}", seen, f"u:{name}", turned)
        self._row(branch, segment, start, end, before, last, records)
        return self._changes

    def _head(self, branch: Branch | None) -> Head | None:
        return self._tree.head(branch, None) if branch else None

    def _last(self, branch: Branch, size: int) -> str | None:
        """The last of the first entries of a branch."""
        if size == branch.size:
            return branch.entry
        for span in reversed(self._tree.path(branch.segment, size)):
            if span.start < span.stop:
                value = self._read("LINDEX", self._keys.entries(span.segment), span.stop - 1 - span.base)
                return id_of(value) if value else None
        return None

    def _path(self, segment: int, size: int) -> list[Span]:
        """The path that ends in a segment, which may have just been made."""
        held = self._new if segment not in self._tree.segments else None
        return self._tree.path(held[0], held[1]) if held else self._tree.path(segment, size)

    def _segment(self, branch: Branch | None, origin: Branch | None, size: int) -> tuple[int, int, bool]:
        """The segment that the entries go into, where it starts, and whether it is a new one."""
        own = [placed.place for placed in self._commit.records if is_alone(placed)]
        if branch is not None and size == branch.size:
            held = self._tree.segments[branch.segment]
            if not own or held.forked <= min(own):
                return held.number, held.start, False
        up = self._tree.segments[origin.segment] if origin else None
        # One that says nothing of its own before this place is passed over, or many cuts would make a long path.
        while up is not None and up.up and size < up.start + (not up.own):
            up = self._tree.segments[up.up]
        number = self._tree.number("segments") + 1
        self._new = (up.number if up else 0, size)
        self._changes.add("HSET", self._keys.c, "segments", number, f"S:{number}", f"{up.number if up else 0}:{size}")
        if up is not None and up.forked < size:
            self._changes.add("HSET", self._keys.c, f"F:{up.number}", size)
        return number, size, True

    def _append(self, segment: int, start: int, size: int, before: str | None, path: list[Span]) -> dict[str, int]:
        """Add the entries. Returns the turns that begin with them, and where."""
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
            self._changes.add("HSET", keys.x, f"{segment}:{size + i}", plain(meta))
        return begins

    def _begun(self, runs: bytes | None, path: Sequence[Span]) -> int | None:
        """The place at which a turn begins on a path."""
        return min((place for segment, place, _ in runs_of(runs) if on(path, segment, place)), default=None)

    def _turn(self, path: Sequence[Span], begins: dict[str, int]) -> bool:
        """Keep the turn. Returns whether it came later than its first entries, which other branches may have too."""
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

    def _ask(self, path: Sequence[Span], begins: dict[str, int]) -> None:
        request, turn, keys = self._commit.request, self._commit.turn, self._keys
        if request is None or turn is None:
            return
        held = self._read("HGET", keys.q, request.key)
        if held:
            if request_of(request.key, held)[1] != turn.id:
                raise KeyTaken(request.key)
            return
        place = begins.get(turn.id)
        if place is None:
            place = self._begun(self._read("HGET", keys.g, turn.id), path) or 0
        data = request_in(request, turn.id, self._commit.branch)
        self._changes.add("HSET", keys.q, request.key, b"%d:%s" % (place, data))

    def _records(self, segment: int, path: Sequence[Span]) -> tuple[list[About], bool]:
        """Keep the records. Returns where they are, and whether another branch may show one of them."""
        commit, keys = self._commit, self._keys
        made: list[About] = []
        if not commit.records:
            return made, False
        number = self._tree.number("records")
        for placed in commit.records:
            number += 1
            holder = segment if is_alone(placed) else _holder(path, placed.place)
            about = About(number, holder, placed.place, placed.record.kind)
            made.append(about)
            self._changes.add("HSET", keys.r, number, encode(placed.record))
            self._changes.add("HSET", keys.h, number, f"{holder}:{placed.place}:{placed.record.kind}")
        if any(map(is_alone, commit.records)):
            self._changes.add("HSET", keys.c, f"O:{segment}", 1)
        self._changes.add("HSET", keys.c, "records", number)
        others = [self._tree.path_of(name) for name in self._tree.branches if name != commit.branch]
        return made, any(on(theirs, about.segment, about.place) for theirs in others for about in made)

    def _shown(self, before: Sequence[int], abouts: Sequence[About], made: Sequence[About]) -> list[int]:
        """What a head shows that has shown these."""
        gone = self._gone(before) if self._commit.done else set()
        kinds = {about.number: about.kind for about in (*abouts, *made)}
        left = [number for number in before if number in kinds and number not in gone]
        for about in made:
            if about.kind in REPLACED:
                left = [number for number in left if kinds[number] != about.kind]
            left.append(about.number)
        return left

    def _gone(self, before: Sequence[int]) -> set[int]:
        """Which of these records are done."""
        held = self._read("HMGET", self._keys.r, *before) if before else []
        done = {encode(record) for record in self._commit.done}
        return {number for number, data in zip(before, held, strict=True) if data in done}

    def _turn_on(self, path: Sequence[Span], begins: dict[str, int]) -> str:
        """The last turn that begins on a path."""
        made = self._commit.turn.id if self._commit.turn else None
        for turn in sorted(begins, key=begins.__getitem__, reverse=True):
            if turn == made or self._read("HEXISTS", self._keys.t, turn):
                return turn
        stop: Any = f"({path[-1].stop}" if path else "-inf"
        skip = 0
        while page := self._read("ZREVRANGEBYSCORE", self._keys.f, stop, "-inf", "LIMIT", skip, PAGE):
            skip += PAGE
            turns = [turn for segment, place, turn in map(begun_of, page) if on(path, segment, place)]
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
            self._changes.add("HSET", keys.c, "meta", plain(commit.meta))

    def heat(self, nonce: bytes) -> None:
        """Say that the list of the owner knows of changes (`redis_lists.py`)."""
        self._changes.add("HSET", self._keys.c, "hot", nonce)


def _holder(path: Sequence[Span], place: int) -> int:
    """The segment of a path in which a place lies; for -1 the first."""
    return next((span.segment for span in reversed(path) if span.base <= place), path[0].segment)

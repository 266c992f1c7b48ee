"""The read methods of the Redis store.

Entries are read with plain commands, never by a script. Reading from a path of one segment takes one round trip. A read
that needs more round trips ends with a check that the conversation wasn't deleted and created again meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

from longtalk.memory.recall.protocol import Matches, SearchTerm
from longtalk.stores._paths import Span, clip, is_on_path
from longtalk.stores.base import MAIN, BranchHead, ConversationInfo, KeyedTurn, PlacedRecord, SearchHit, meta_matches
from longtalk.stores.in_memory import match_terms, rank_hits
from longtalk.stores.redis.connection import Command, Link
from longtalk.stores.redis.lists import Lists
from longtalk.stores.redis.scripts import HEAD
from longtalk.stores.redis.search import Words
from longtalk.stores.redis.tree import (
    Damaged,
    Gone,
    Keys,
    Tree,
    abouts_of,
    begun_of,
    head_of,
    meta_of,
    name_of,
    pack_of,
    record_of,
    request_of,
    runs_of,
    tree_of,
    turn_of,
)
from longtalk.stores.redis.verify import problems
from longtalk.transcript.pack import EMPTY, Entry, Pack
from longtalk.transcript.transcript import Turn

TIPS = 10_000
"""The maximum number of branches whose last segment this process remembers."""

_Given = TypeVar("_Given")


class Reader:
    """The part of the Redis store that only reads."""

    def __init__(self, link: Link, prefix: str) -> None:
        self._link = link
        self._prefix = prefix
        self._lists = Lists(link, prefix)
        self._words = Words()
        self._tips: dict[tuple[str, str], tuple[int, int]] = {}
        """The last segment of each branch and its start, as this process last saw them, by conversation and branch."""

    def _keys(self, owner: str, conversation: str) -> Keys:
        return Keys(self._prefix, owner, conversation)

    def _tip(self, keys: Keys, branch: str, segment: int, start: int) -> None:
        if len(self._tips) >= TIPS:
            self._tips.clear()
        self._tips[keys.tag, branch] = segment, start

    def _head(self, keys: Keys, branch: str, found: Any) -> BranchHead | None:
        if not found:
            return None
        self._tip(keys, branch, int(found[1]), int(found[2]))
        return head_of(branch, found)

    def _tree(self, keys: Keys) -> Tree | None:
        return tree_of(self._link.read(keys.c, Command("HGETALL", (), [keys.c]))[0])

    def _steady(self, keys: Keys, work: Callable[[Tree | None], _Given]) -> _Given:
        """Call `work` with the tree of a conversation, or None if it doesn't exist, and return the result.

        If the conversation is deleted or replaced by a new one with the same id meanwhile, start over.
        """
        while True:
            tree = self._tree(keys)
            given: _Given | None = None
            with suppress(Gone):
                given = work(tree)
            born = self._link.read(keys.c, Command("HGET", ("born",), [keys.c]))[0] if tree else None
            if born == (tree.born if tree else None) and given is not None:
                return given

    def head(self, owner: str, conversation: str, branch: str = MAIN) -> BranchHead | None:
        keys = self._keys(owner, conversation)
        return self._head(keys, branch, self._link.read(keys.c, Command(HEAD, [branch], keys.all))[0])

    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        keys, start = self._keys(owner, conversation), max(start, 0)
        if start >= stop:
            return EMPTY
        segment, base = self._tips.get((keys.tag, branch), (1, 0))
        row = Command("HMGET", [f"s:{branch}", f"b:{branch}", f"n:{branch}", "born"], [keys.c])
        # Guess that the branch still ends in the segment last seen. If the range starts before it, read nothing.
        positions = (start - base, stop - base - 1) if start >= base else (1, 0)
        entries = Command("LRANGE", positions, [keys.entries(segment)])
        again = Command("HGET", ["born"], [keys.c])
        (tip, first, size, born), values, then = self._link.read(keys.c, row, entries, again)
        stop = min(stop, int(size or 0))
        if start >= stop:
            return EMPTY
        self._tip(keys, branch, int(tip), int(first))
        guessed = (int(tip), int(first)) == (segment, base) and start >= base
        if guessed and born == then and len(values) >= stop - start:
            return pack_of(values[: stop - start])
        return self._steady(keys, lambda tree: self._path(keys, tree, branch, start, stop))

    def _path(self, keys: Keys, tree: Tree | None, branch: str, start: int, stop: int) -> Pack:
        spans = clip(tree.path_of(branch), start, stop) if tree else []
        if tree is None or not spans:
            return EMPTY
        return pack_of([value for values in self._lists_of(keys, tree, spans) for value in values])

    def _lists_of(self, keys: Keys, tree: Tree, spans: Sequence[Span[int]]) -> list[list[bytes]]:
        """Return the stored entries of these spans, as one list per span, in one round trip."""
        commands = [
            Command("LRANGE", (start - base, stop - base - 1), [keys.entries(segment)])
            for segment, start, stop in spans
            for base in (tree.segments[segment].start,)
        ]
        parts: list[list[bytes]] = self._link.read(keys.c, *commands)
        if any(len(values) != span.stop - span.start for span, values in zip(spans, parts, strict=True)):
            now = self._tree(keys)
            if now is not None and now.born == tree.born:
                raise Damaged("entries are missing")
            raise Gone
        return parts

    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        keys = self._keys(owner, conversation)

        def work(tree: Tree | None) -> list[list[Entry]]:
            path = tree.path_of(branch) if tree else []
            spans = [clip(path, max(0, start), stop) for start, stop in ranges]
            if tree is None or not any(spans):
                return [[] for _ in ranges]
            parts = iter(self._lists_of(keys, tree, [span for some in spans for span in some]))
            return [pack_of([value for _ in some for value in next(parts)]).entries() if some else [] for some in spans]

        return self._steady(keys, work)

    def _begun(self, keys: Keys, branch: str, start: int, stop: int, key: bytes) -> list[tuple[int, str, bytes]]:
        """Return position, id and data of the turns that begin at positions `start` to `stop - 1` of a path.

        The data is read from the hash at `key`. Turns that the hash doesn't contain are left out.
        """

        def work(tree: Tree | None) -> list[tuple[int, str, bytes]]:
            if tree is None or branch not in tree.branches or start >= stop:
                return []
            path = tree.path_of(branch)
            found = self._link.read(keys.c, Command("ZRANGEBYSCORE", (start, f"({stop}"), [keys.f]))[0]
            begun = [
                (position, turn)
                for segment, position, turn in map(begun_of, found)
                if is_on_path(path, segment, position)
            ]
            if not begun:
                return []
            data = self._link.read(keys.c, Command("HMGET", [turn for _, turn in begun], [key]))[0]
            pairs = zip(begun, data, strict=True)
            return [(position, turn, value) for (position, turn), value in pairs if value is not None]

        return self._steady(keys, work)

    def turns(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> list[tuple[int, Turn]]:
        keys = self._keys(owner, conversation)
        return [(position, turn_of(data)) for position, _, data in self._begun(keys, branch, start, stop, keys.t)]

    def manifest(self, owner: str, conversation: str, turn: str) -> bytes:
        keys = self._keys(owner, conversation)
        return self._link.read(keys.c, Command("HGET", [turn], [keys.m]))[0] or b""

    def manifests(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[str, bytes]:
        keys = self._keys(owner, conversation)
        return {turn: data for _, turn, data in self._begun(keys, branch, start, stop, keys.m)}

    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> list[PlacedRecord]:
        keys = self._keys(owner, conversation)

        def work(tree: Tree | None) -> list[PlacedRecord]:
            path = tree.path_of(branch) if tree else []
            abouts = abouts_of(self._link.read(keys.c, Command("HGETALL", (), [keys.h]))[0]) if path else []
            seen = [
                about
                for about in abouts
                if kind in (None, about.kind) and is_on_path(path, about.segment, about.position)
            ]
            if not seen:
                return []
            data = self._link.read(keys.c, Command("HMGET", [about.number for about in seen], [keys.r]))[0]
            return [
                PlacedRecord(record_of(value), about.position) for about, value in zip(seen, data, strict=True) if value
            ]

        return self._steady(keys, work)

    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        keys = self._keys(owner, conversation)

        def work(tree: Tree | None) -> dict[int, dict[str, Any]]:
            path = clip(tree.path_of(branch), start, stop) if tree else []
            if not path:
                return {}
            positions = [(span.segment, position) for span in path for position in range(span.start, span.stop)]
            names = [f"{segment}:{position}" for segment, position in positions]
            data = self._link.read(keys.c, Command("HMGET", names, [keys.x]))[0]
            return {
                position: meta_of(value)
                for (_, position), value in zip(positions, data, strict=True)
                if value is not None
            }

        return self._steady(keys, work)

    def keyed_turn(self, owner: str, conversation: str, key: str) -> KeyedTurn | None:
        keys = self._keys(owner, conversation)

        def work(tree: Tree | None) -> list[KeyedTurn]:
            value = self._link.read(keys.c, Command("HGET", [key], [keys.q]))[0] if tree else None
            return self._told(keys, tree, {key: value}) if tree and value is not None else []

        return next(iter(self._steady(keys, work)), None)

    def keyed_turns(self, owner: str, conversation: str) -> list[KeyedTurn]:
        keys = self._keys(owner, conversation)

        def work(tree: Tree | None) -> list[KeyedTurn]:
            fields = self._link.read(keys.c, Command("HGETALL", (), [keys.q]))[0] if tree else []
            held = sorted(zip(fields[::2], fields[1::2], strict=True))
            return self._told(keys, tree, {name_of(key): value for key, value in held}) if tree and held else []

        return self._steady(keys, work)

    def _told(self, keys: Keys, tree: Tree, held: Mapping[str, bytes]) -> list[KeyedTurn]:
        """Return the turns of stored requests. `held` contains the encoded requests by idempotency key."""
        asked = [request_of(key, value) for key, value in held.items()]
        names = [turn for _, turn, _, _ in asked]
        datas, runs = self._link.read(keys.c, Command("HMGET", names, [keys.t]), Command("HMGET", names, [keys.g]))
        found: list[KeyedTurn] = []
        for (request, _, branch, position), data, run in zip(asked, datas, runs, strict=True):
            if data is None:
                raise Gone
            where = branch, position
            # Prefer the branch that the turn was made on, if it still has the turn.
            for name in (branch, *tree.branches):
                path = tree.path_of(name)
                positions = [at for segment, at, _ in runs_of(run) if is_on_path(path, segment, at)]
                if positions:
                    where = name, min(positions)
                    break
            found.append(KeyedTurn(request, where[0], turn_of(data), where[1]))
        return found

    def branches(self, owner: str, conversation: str) -> list[BranchHead]:
        keys = self._keys(owner, conversation)

        def work(tree: Tree | None) -> list[BranchHead]:
            if tree is None:
                return []
            names = [branch.turn for branch in tree.branches.values()]
            turns = self._link.read(keys.c, Command("HMGET", names, [keys.t]))[0]
            pairs = zip(tree.branches.values(), turns, strict=True)
            return [tree.head(branch, turn_of(turn) if turn else None) for branch, turn in pairs]

        return self._steady(keys, work)

    def info(self, owner: str, conversation: str) -> ConversationInfo | None:
        tree = self._tree(self._keys(owner, conversation))
        return tree.info(conversation) if tree else None

    def conversations(
        self,
        owner: str,
        *,
        limit: int = 50,
        after: tuple[int, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[ConversationInfo]:
        found: list[ConversationInfo] = []
        if limit <= 0:
            return found
        positions = self._lists.newest(owner, after)
        while len(found) < limit and (page := [name for _, name in islice(positions, limit)]):
            for name, tree in zip(page, self._trees(owner, page), strict=True):
                summary = tree.info(name) if tree else None
                if summary and meta_matches(summary.meta, meta or {}):
                    found.append(summary)
        return found[:limit]

    def _trees(self, owner: str, names: Sequence[str]) -> list[Tree | None]:
        keys = [self._keys(owner, name).c for name in names]
        return [tree_of(fields) for fields in self._link.scatter([Command("HGETALL", (), [key]) for key in keys])]

    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[SearchHit]:
        names = self._lists.ids(owner) if conversation is None else [conversation]
        texts: list[tuple[SearchHit, str]] = []
        for name, tree in zip(names, self._trees(owner, names), strict=True):
            keys = self._keys(owner, name)

            def work(tree: Tree | None, keys: Keys = keys, name: str = name) -> list[tuple[SearchHit, str]]:
                return list(self._words.found(self._link, keys, tree, name)) if tree else []

            known = tree is None or self._words.has(keys, tree)
            texts += work(tree) if known else self._steady(keys, work)
        return rank_hits(texts, terms, limit)

    def matches(
        self, owner: str, conversation: str, branch: str, sought: Sequence[SearchTerm], most: int
    ) -> list[Matches]:
        keys = self._keys(owner, conversation)

        def work(tree: Tree | None) -> list[Matches]:
            return match_terms(self._words.spoken(self._link, keys, tree, branch) if tree else (), sought, most)

        return self._steady(keys, work)

    def verify(self, owner: str, conversation: str) -> list[str]:
        keys = self._keys(owner, conversation)
        while True:
            try:
                tree = self._tree(keys)
            except Damaged as problem:
                return [problem.what]
            found = list(problems(self._link, keys, tree)) if tree else []
            if not found or tree is None or self._is_still(keys, tree):
                return found

    def _is_still(self, keys: Keys, tree: Tree) -> bool:
        """Return whether a conversation is unchanged since its tree was read."""
        found = self._link.read(keys.c, Command("HMGET", ("born", "version"), [keys.c]))[0]
        return bool(found == [tree.born, tree.version])

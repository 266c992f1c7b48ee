"""The read methods of the Redis store.

Entries are read with plain commands, never by a script. Reading from a path of one segment takes one round trip. A read
that needs more round trips ends with a check that the conversation wasn't deleted and created again in the meantime.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any

from longtalk.memory.recall.protocol import Matches, SearchTerm
from longtalk.stores._paths import clip, is_on_path
from longtalk.stores.base import MAIN, BranchHead, ConversationInfo, KeyedTurn, PlacedRecord, SearchHit
from longtalk.stores.checks import meta_matches
from longtalk.stores.in_memory import match_terms, rank_hits
from longtalk.stores.redis.command import Command
from longtalk.stores.redis.connection import Client
from longtalk.stores.redis.lists import ConversationLists
from longtalk.stores.redis.scripts import HEAD
from longtalk.stores.redis.search import TextCache
from longtalk.stores.redis.tree import (
    ConversationGone,
    Damaged,
    Keys,
    Tree,
    decode_head,
    decode_location,
    decode_locations,
    decode_meta,
    decode_name,
    decode_pack,
    decode_record,
    decode_request,
    decode_runs,
    decode_turn,
    decode_turn_start,
)
from longtalk.stores.redis.tree_reader import TreeReader
from longtalk.stores.redis.verify import find_problems
from longtalk.transcript.pack import EMPTY, Entry, Pack
from longtalk.transcript.transcript import Turn


class Reader(TreeReader):
    """The part of the Redis store that only reads."""

    def __init__(self, client: Client, prefix: str) -> None:
        super().__init__(client, prefix)
        self._lists = ConversationLists(client, prefix)
        self._texts = TextCache()

    def head(self, owner: str, conversation: str, branch: str = MAIN) -> BranchHead | None:
        keys = self._get_keys(owner, conversation)
        return self._decode_head(keys, branch, self._client.read(Command(HEAD, [branch], keys.all))[0])

    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        keys, start = self._get_keys(owner, conversation), max(start, 0)
        if start >= stop:
            return EMPTY
        # Guess that the branch still ends in the segment last seen. If the range starts earlier, read none yet.
        guess = segment, first = self._tips.get((keys.tag, branch), (1, 0))
        indexes = (start - first, stop - first - 1) if start >= first else (1, 0)
        (tip, tip_start, size, born), values, born_after = self._client.read(
            Command("HMGET", [f"s:{branch}", f"b:{branch}", f"n:{branch}", "born"], [keys.conversation]),
            Command("LRANGE", indexes, [keys.get_entries_key(segment)]),
            Command("HGET", ["born"], [keys.conversation]),
        )
        stop = min(stop, int(size or 0))
        if start >= stop:
            return EMPTY
        self._remember_tip(keys, branch, int(tip), int(tip_start))
        is_guess_right = (int(tip), int(tip_start)) == guess and start >= first
        if is_guess_right and born == born_after and len(values) >= stop - start:
            return decode_pack(values[: stop - start])
        return self._read_consistently(keys, lambda tree: self._read_path(keys, tree, branch, start, stop))

    def _read_path(self, keys: Keys, tree: Tree | None, branch: str, start: int, stop: int) -> Pack:
        spans = clip(tree.find_branch_path(branch), start, stop) if tree else []
        if tree is None or not spans:
            return EMPTY
        return decode_pack([value for values in self._read_spans(keys, tree, spans) for value in values])

    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        keys = self._get_keys(owner, conversation)

        def read_from(tree: Tree | None) -> list[list[Entry]]:
            path = tree.find_branch_path(branch) if tree else []
            spans = [clip(path, max(0, start), stop) for start, stop in ranges]
            if tree is None or not any(spans):
                return [[] for _ in ranges]
            parts = iter(self._read_spans(keys, tree, [span for some in spans for span in some]))
            return [
                decode_pack([value for _ in some for value in next(parts)]).entries() if some else [] for some in spans
            ]

        return self._read_consistently(keys, read_from)

    def _read_turn_data(
        self, keys: Keys, branch: str, start: int, stop: int, key: bytes
    ) -> list[tuple[int, str, bytes]]:
        """Return the position, id and data of the turns that begin at positions `start` to `stop - 1` of a path.

        The data is read from the hash at `key`. Turns that the hash doesn't contain are left out.
        """

        def read_from(tree: Tree | None) -> list[tuple[int, str, bytes]]:
            if tree is None or branch not in tree.branches or start >= stop:
                return []
            path = tree.find_branch_path(branch)
            starts = self._client.read(Command("ZRANGEBYSCORE", (start, f"({stop}"), [keys.turn_starts]))[0]
            turns = [
                (position, turn)
                for segment, position, turn in map(decode_turn_start, starts)
                if is_on_path(path, segment, position)
            ]
            if not turns:
                return []
            data = self._client.read(Command("HMGET", [turn for _, turn in turns], [key]))[0]
            pairs = zip(turns, data, strict=True)
            return [(position, turn, value) for (position, turn), value in pairs if value is not None]

        return self._read_consistently(keys, read_from)

    def turns(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> list[tuple[int, Turn]]:
        keys = self._get_keys(owner, conversation)
        return [
            (position, decode_turn(data))
            for position, _, data in self._read_turn_data(keys, branch, start, stop, keys.turns)
        ]

    def manifest(self, owner: str, conversation: str, turn: str) -> bytes:
        keys = self._get_keys(owner, conversation)
        return self._client.read(Command("HGET", [turn], [keys.manifests]))[0] or b""

    def manifests(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[str, bytes]:
        keys = self._get_keys(owner, conversation)
        return {turn: data for _, turn, data in self._read_turn_data(keys, branch, start, stop, keys.manifests)}

    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> list[PlacedRecord]:
        keys = self._get_keys(owner, conversation)

        def read_from(tree: Tree | None) -> list[PlacedRecord]:
            path = tree.find_branch_path(branch) if tree else []
            locations = decode_locations(self._client.read(Command("HGETALL", (), [keys.locations]))[0]) if path else []
            seen = [
                location
                for location in locations
                if kind in (None, location.kind) and is_on_path(path, location.segment, location.position)
            ]
            if not seen:
                return []
            data = self._client.read(Command("HMGET", [location.number for location in seen], [keys.records]))[0]
            return [
                PlacedRecord(decode_record(value), location.position)
                for location, value in zip(seen, data, strict=True)
                if value
            ]

        return self._read_consistently(keys, read_from)

    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        keys = self._get_keys(owner, conversation)

        def read_from(tree: Tree | None) -> dict[int, dict[str, Any]]:
            path = clip(tree.find_branch_path(branch), start, stop) if tree else []
            if not path:
                return {}
            positions = [(span.segment, position) for span in path for position in range(span.start, span.stop)]
            names = [f"{segment}:{position}" for segment, position in positions]
            data = self._client.read(Command("HMGET", names, [keys.metas]))[0]
            return {
                position: decode_meta(value)
                for (_, position), value in zip(positions, data, strict=True)
                if value is not None
            }

        return self._read_consistently(keys, read_from)

    def keyed_turn(self, owner: str, conversation: str, key: str) -> KeyedTurn | None:
        keys = self._get_keys(owner, conversation)

        def read_from(tree: Tree | None) -> list[KeyedTurn]:
            value = self._client.read(Command("HGET", [key], [keys.requests]))[0] if tree else None
            return self._build_keyed_turns(keys, tree, {key: value}) if tree and value is not None else []

        return next(iter(self._read_consistently(keys, read_from)), None)

    def keyed_turns(self, owner: str, conversation: str) -> list[KeyedTurn]:
        keys = self._get_keys(owner, conversation)

        def read_from(tree: Tree | None) -> list[KeyedTurn]:
            fields = self._client.read(Command("HGETALL", (), [keys.requests]))[0] if tree else []
            requests = {decode_name(key): value for key, value in sorted(zip(fields[::2], fields[1::2], strict=True))}
            return self._build_keyed_turns(keys, tree, requests) if tree and requests else []

        return self._read_consistently(keys, read_from)

    def _build_keyed_turns(self, keys: Keys, tree: Tree, encoded: Mapping[str, bytes]) -> list[KeyedTurn]:
        """Build keyed turns from stored requests. `encoded` maps each idempotency key to its encoded request."""
        requests = [decode_request(key, value) for key, value in encoded.items()]
        names = [turn for _, turn, _, _ in requests]
        turns, runs = self._client.read(Command("HMGET", names, [keys.turns]), Command("HMGET", names, [keys.runs]))
        keyed_turns: list[KeyedTurn] = []
        for (request, _, branch, position), turn, turn_runs in zip(requests, turns, runs, strict=True):
            if turn is None:
                raise ConversationGone
            # Prefer the branch that the turn was made on, if it still has the turn.
            for name in (branch, *tree.branches):
                path = tree.find_branch_path(name)
                positions = [at for segment, at, _ in decode_runs(turn_runs) if is_on_path(path, segment, at)]
                if positions:
                    branch, position = name, min(positions)
                    break
            keyed_turns.append(KeyedTurn(request, branch, decode_turn(turn), position))
        return keyed_turns

    def branches(self, owner: str, conversation: str) -> list[BranchHead]:
        keys = self._get_keys(owner, conversation)

        def read_from(tree: Tree | None) -> list[BranchHead]:
            if tree is None:
                return []
            names = [branch.turn for branch in tree.branches.values()]
            turns = self._client.read(Command("HMGET", names, [keys.turns]))[0]
            pairs = zip(tree.branches.values(), turns, strict=True)
            return [tree.build_head(branch, decode_turn(turn) if turn else None) for branch, turn in pairs]

        return self._read_consistently(keys, read_from, with_leases=True)

    def heads(self, owner: str, conversations: Sequence[str], most: int) -> dict[str, list[BranchHead]]:
        wanted: list[tuple[str, str]] = []
        for name, tree in zip(conversations, self._read_trees(owner, conversations), strict=True):
            branches = sorted(tree.branches.values(), key=lambda each: (-each.updated, each.name)) if tree else []
            wanted += [(name, branch.name) for branch in branches[:most]]
        keys = {name: self._get_keys(owner, name) for name, _ in wanted}
        replies = self._client.scatter([Command(HEAD, [branch], keys[name].all) for name, branch in wanted])
        found: dict[str, list[BranchHead]] = {}
        for (name, branch), reply in zip(wanted, replies, strict=True):
            head = decode_head(branch, reply) if reply else None
            if head is not None:
                found.setdefault(name, []).append(head)
        return found

    def info(self, owner: str, conversation: str) -> ConversationInfo | None:
        tree = self._read_tree(self._get_keys(owner, conversation))
        return tree.build_info(conversation) if tree else None

    def conversations(
        self,
        owner: str,
        *,
        limit: int = 50,
        after: tuple[int, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[ConversationInfo]:
        infos: list[ConversationInfo] = []
        if limit <= 0:
            return infos
        newest = self._lists.iterate_newest(owner, after)
        while len(infos) < limit and (page := [name for _, name in islice(newest, limit)]):
            for name, tree in zip(page, self._read_trees(owner, page), strict=True):
                info = tree.build_info(name) if tree else None
                if info and meta_matches(info.meta, meta or {}):
                    infos.append(info)
        return infos[:limit]

    def owners(self) -> list[str]:
        return self._lists.list_owners()

    def conversations_with(self, owner: str, kind: str) -> list[str]:
        names = self._lists.list_ids(owner)
        trees = zip(names, self._read_trees(owner, names), strict=True)
        numbers = {name: [n for each in tree.branches.values() for n in each.records] for name, tree in trees if tree}
        numbers = {name: each for name, each in numbers.items() if each}
        locations = self._client.scatter(
            [Command("HMGET", each, [self._get_keys(owner, name).locations]) for name, each in numbers.items()]
        )
        return [
            name
            for name, values in zip(numbers, locations, strict=True)
            if any(value and decode_location(b"0", value).kind == kind for value in values)
        ]

    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[SearchHit]:
        names = self._lists.list_ids(owner) if conversation is None else [conversation]
        texts: list[tuple[SearchHit, str]] = []
        for name, tree in zip(names, self._read_trees(owner, names), strict=True):
            keys = self._get_keys(owner, name)

            def read_from(tree: Tree | None, keys: Keys = keys, name: str = name) -> list[tuple[SearchHit, str]]:
                return list(self._texts.iterate_hits(self._client, keys, tree, name)) if tree else []

            known = tree is None or self._texts.has_all(keys, tree)
            texts += read_from(tree) if known else self._read_consistently(keys, read_from)
        return rank_hits(texts, terms, limit)

    def matches(
        self, owner: str, conversation: str, branch: str, terms: Sequence[SearchTerm], most: int
    ) -> list[Matches]:
        keys = self._get_keys(owner, conversation)

        def read_from(tree: Tree | None) -> list[Matches]:
            return match_terms(self._texts.iterate_words(self._client, keys, tree, branch) if tree else (), terms, most)

        return self._read_consistently(keys, read_from)

    def verify(self, owner: str, conversation: str) -> list[str]:
        keys = self._get_keys(owner, conversation)
        while True:
            try:
                tree = self._read_tree(keys)
            except Damaged as problem:
                return [problem.damage]
            problems = list(find_problems(self._client, keys, tree)) if tree else []
            # A change during the check may look like damage.
            if not problems or tree is None or self._is_unchanged(keys, tree):
                return problems

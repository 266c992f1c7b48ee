"""Which conversations an owner has, by when they were changed.

The conversation is the truth, and lies in another slot than its owner's list: the two can't be changed at once. So a
conversation that is being written to is not in the order of the list at all, but among those that are *hot*: whoever
writes to one that is not has it put there first, and the script that writes refuses to while it is not. Whoever reads
the list asks the hot ones when they were changed. A crash anywhere between leaves a name among the hot ones that is
asked once more, never one that is missing or in the wrong place.

When many are hot, those that have been quiet for a while are settled: first the conversation is told that it is not
hot any more (and has to be put there again by who writes next), then it goes into the list. Each time that it is put
among the hot ones has a mark of its own (`nonce`), and is taken out by that mark alone: whoever was faster is not
undone. What was told before a settling counts for nothing after it (`gen`).
"""

from __future__ import annotations

import hashlib
import heapq
import os
from collections.abc import Iterator
from typing import Any

from longtalk.stores.redis_link import Command, Link, NotReplicated
from longtalk.stores.redis_scripts import COOL, SETTLE
from longtalk.stores.redis_tree import Keys, time_of
from longtalk.transcript import now

HOT = 64
"""So many stay hot, however quiet they are."""
QUIET = 60_000
"""Milliseconds without a change after which one may be settled."""
LOST = 600_000
"""Milliseconds after which a conversation that was to begin will not any more."""
MOST = 200
"""How many are settled at once."""
PAGE = 100

Place = tuple[int, str]
"""When a conversation was changed, the newest first, and its id."""


class Lists:
    """The lists of all owners."""

    def __init__(self, link: Link, prefix: str) -> None:
        self._link = link
        self._prefix = prefix

    def _keys(self, owner: str) -> list[bytes]:
        """The list, and those that are hot."""
        tag = hashlib.blake2b(owner.encode(), digest_size=16).hexdigest()
        return [f"{self._prefix}:{{{tag}}}:{part}".encode() for part in ("list", "hot")]

    def heat(self, owner: str, id: str) -> bytes:  # noqa: A002
        """Put a conversation among the hot ones. Returns the mark to write with."""
        _, hot = self._keys(owner)
        nonce = b"%d-%s" % (now(), os.urandom(6).hex().encode())
        _, safe = self._link.change(hot, Command("HSET", (id, nonce), [hot]))
        if not safe:
            raise NotReplicated("Too few replicas have answered in time. Nothing was written: ask again.")
        return nonce

    def forget(self, owner: str, id: str, nonce: bytes) -> None:  # noqa: A002
        """A conversation is gone. `nonce` is what made it hot."""
        listed, hot = self._keys(owner)
        taken = Command(COOL, (id, nonce, ""), [listed, hot])
        self._link.read(listed, taken, Command("ZREM", (id,), [listed]))

    def ids(self, owner: str) -> list[str]:
        listed, hot = self._keys(owner)
        names, settled = self._link.read(listed, Command("HKEYS", (), [hot]), Command("ZRANGE", (0, -1), [listed]))
        return list(dict.fromkeys(name.decode() for name in (*names, *settled)))

    def newest(self, owner: str, after: tuple[int, str] | None) -> Iterator[Place]:
        """Conversations in the order of a list, behind a place. Some may be gone."""
        listed, hot = self._keys(owner)
        found = self._link.read(hot, Command("HGETALL", (), [hot]))[0]
        nonces = {name.decode(): nonce for name, nonce in zip(found[::2], found[1::2], strict=True)}
        times = self._updated(owner, list(nonces))
        self._settle(owner, nonces, times)
        behind = (-after[0], after[1]) if after else (-(2**62), "")
        warm = sorted((-at, name) for name, at in times.items() if (-at, name) > behind)
        settled = (place for place in self._settled(listed, behind) if place[1] not in nonces)
        return heapq.merge(warm, settled)

    def _updated(self, owner: str, ids: list[str]) -> dict[str, int]:
        """When conversations were changed, of those that are there."""
        keys = [Keys(self._prefix, owner, name).c for name in ids]
        found = self._link.scatter([Command("HMGET", ("updated",), [key]) for key in keys])
        return {name: time_of(at) for name, (at,) in zip(ids, found, strict=True) if at is not None}

    def _settled(self, listed: bytes, behind: Place) -> Iterator[Place]:
        skip = 0
        while True:
            bounds: tuple[Any, ...] = (behind[0], "+inf", "WITHSCORES", "LIMIT", skip, PAGE)
            page = self._link.read(listed, Command("ZRANGEBYSCORE", bounds, [listed]))[0]
            places = [(int(float(score)), name.decode()) for name, score in zip(page[::2], page[1::2], strict=True)]
            yield from (place for place in places if place > behind)
            if len(places) < PAGE:
                return
            skip += PAGE

    def _settle(self, owner: str, nonces: dict[str, bytes], times: dict[str, int]) -> None:
        """Put those that are quiet into the list if there are many, and forget those that never began."""
        keys, at = self._keys(owner), now()
        quiet = [name for name, updated in times.items() if updated < at - QUIET] if len(nonces) > HOT else []
        for name in sorted(quiet, key=times.__getitem__)[:MOST]:
            key = Keys(self._prefix, owner, name).c
            updated, safe = self._link.change(key, Command(SETTLE, [nonces[name]], [key]))
            if safe and updated not in (b"hot", b"none"):
                self._link.read(keys[0], Command(COOL, (name, nonces[name], updated), keys))
        for name in nonces.keys() - times.keys():
            if int(nonces[name].split(b"-")[0]) < at - LOST:
                self._link.read(keys[0], Command(COOL, (name, nonces[name], ""), keys))

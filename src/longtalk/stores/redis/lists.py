"""The list of an owner's conversations, ordered by the time of their last change.

A conversation and its owner's list are in different slots, so they can't be changed in one step. The conversation is
authoritative. While it is being written to, it isn't in the ordered list but in a hash of *hot* conversations: a writer
adds it there first, and the script that writes refuses a conversation that isn't hot. A reader of the list asks each
hot conversation for the time of its last change. A crash at any point can leave a name in the hash that is asked once
too often, but never a conversation that is missing from the list or in the wrong position.

When many conversations are hot, those without recent changes are *settled*: first the conversation is marked as not
hot, so that the next writer has to add it to the hash again, and then it is moved to the ordered list. Each time a
conversation becomes hot it gets a new `nonce`, and only a call with that nonce removes it, so a slow process can't undo
what a faster one did. Settling also increments the conversation's generation (`gen`), which invalidates what writers
have read before.
"""

from __future__ import annotations

import hashlib
import heapq
import os
from collections.abc import Iterator
from typing import Any

from longtalk.stores.redis.connection import Command, Link, NotReplicated
from longtalk.stores.redis.scripts import COOL, SETTLE
from longtalk.stores.redis.tree import Keys, time_of
from longtalk.transcript.transcript import now

HOT = 64
"""The number of hot conversations up to which none is settled."""
QUIET = 60_000
"""Milliseconds without a change after which a conversation may be settled."""
LOST = 600_000
"""Milliseconds after which a hot conversation that was never created is removed from the hash."""
MOST = 200
"""The maximum number of conversations that are settled at once."""
PAGE = 100
"""The number of conversations read per request."""

Place = tuple[int, str]
"""A position in the list: the time of the last change, and the conversation's id.

The time is negated, so that the newest conversation sorts first.
"""


class Lists:
    """The conversation lists of all owners."""

    def __init__(self, link: Link, prefix: str) -> None:
        self._link = link
        self._prefix = prefix

    def _keys(self, owner: str) -> list[bytes]:
        """Return the keys of an owner's ordered list and of the hash of hot conversations."""
        tag = hashlib.blake2b(owner.encode(), digest_size=16).hexdigest()
        return [f"{self._prefix}:{{{tag}}}:{part}".encode() for part in ("list", "hot")]

    def heat(self, owner: str, id: str) -> bytes:  # noqa: A002
        """Mark a conversation as hot. Return the nonce, which the following commit must contain."""
        _, hot = self._keys(owner)
        nonce = b"%d-%s" % (now(), os.urandom(6).hex().encode())
        _, safe = self._link.change(hot, Command("HSET", (id, nonce), [hot]))
        if not safe:
            raise NotReplicated("Too few replicas have answered in time. Nothing was written: ask again.")
        return nonce

    def forget(self, owner: str, id: str, nonce: bytes) -> None:  # noqa: A002
        """Remove a deleted conversation from its owner's list. `nonce` is the one with which it became hot."""
        listed, hot = self._keys(owner)
        taken = Command(COOL, (id, nonce, ""), [listed, hot])
        self._link.read(listed, taken, Command("ZREM", (id,), [listed]))

    def ids(self, owner: str) -> list[str]:
        """Return the ids of all conversations of an owner, in no particular order."""
        listed, hot = self._keys(owner)
        names, settled = self._link.read(listed, Command("HKEYS", (), [hot]), Command("ZRANGE", (0, -1), [listed]))
        return list(dict.fromkeys(name.decode() for name in (*names, *settled)))

    def newest(self, owner: str, after: tuple[int, str] | None) -> Iterator[Place]:
        """Return the conversations after a position of the list, most recently changed first. Some may be deleted."""
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
        """Return the time of each conversation's last change, by id. Conversations that don't exist are left out."""
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
        """Settle conversations without recent changes if many are hot, and remove hot ones that were never created."""
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

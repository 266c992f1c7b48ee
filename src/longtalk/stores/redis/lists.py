"""The list of an owner's conversations, ordered by the time of their last change.

A conversation and its owner's list are in different slots, so they can't be changed in one step. The conversation is
authoritative. While it is being written to, it isn't in the ordered list but in a hash of *hot* conversations: a writer
adds it there first, and the script that writes refuses a conversation that isn't hot. A reader of the list reads the
time of the last change from each hot conversation. A crash at any point can leave a superfluous id in the hash, but
never makes a conversation disappear from the list or appear in the wrong order.

When many conversations are hot, those without recent changes are *settled*: first the conversation is marked as not
hot, so that the next writer has to add it to the hash again, and then it is moved to the ordered list. Each time a
conversation becomes hot it gets a new `nonce`, and only a call with that nonce removes it, so a slow process can't undo
the work of a faster one. Settling also increments the conversation's generation (`gen`), so that a writer that read the
conversation before has to mark it as hot again.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import re
from collections.abc import Iterator
from typing import Any

from longtalk.errors import InputError
from longtalk.stores.redis.command import Command
from longtalk.stores.redis.connection import Client, NotReplicated
from longtalk.stores.redis.scripts import COOL, SETTLE
from longtalk.stores.redis.tree import Keys, decode_time
from longtalk.transcript.transcript import now

MAX_HOT = 64
"""Conversations are settled only if more than this number are hot."""
QUIET_MS = 60_000
"""Milliseconds without a change after which a conversation may be settled."""
LOST_MS = 600_000
"""Milliseconds after which a hot conversation that was never created is removed from the hash."""
MAX_SETTLED = 200
"""The maximum number of conversations that are settled at once."""
PAGE = 100
"""The number of conversations read per request."""

SortKey = tuple[int, str]
"""The negated time of a conversation's last change, so that the newest sorts first, and the conversation's id."""


class ConversationLists:
    """The conversation lists of all owners."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._owners = f"{prefix}:owners".encode()

    def _get_keys(self, owner: str) -> list[bytes]:
        """Return the keys of an owner's ordered list and of the hash of hot conversations."""
        tag = hashlib.blake2b(owner.encode(), digest_size=16).hexdigest()
        return [f"{self._prefix}:{{{tag}}}:{part}".encode() for part in ("list", "hot")]

    def mark_hot(self, owner: str, id: str) -> bytes:  # noqa: A002
        """Mark a conversation as hot. Return the nonce, which the following commit must contain."""
        _, hot = self._get_keys(owner)
        nonce = b"%d-%s" % (now(), os.urandom(6).hex().encode())
        safe = self._client.change_all([Command("HSET", (id, nonce), [hot]), self._add_owner(owner)])[1]
        if not safe:
            raise NotReplicated("Too few replicas acknowledged a write in time. The commit was not written: try again.")
        return nonce

    def remove(self, owner: str, id: str, nonce: bytes) -> None:  # noqa: A002
        """Remove a deleted conversation from its owner's list. `nonce` is the one it got when it became hot."""
        listed, hot = self._get_keys(owner)
        self._client.read(Command(COOL, (id, nonce, ""), [listed, hot]), Command("ZREM", (id,), [listed]))
        if self._is_empty(owner):
            self._client.read(Command("SREM", (owner.encode(),), [self._owners]))
            # Another process may have added a conversation in between.
            if not self._is_empty(owner):
                self._client.read(self._add_owner(owner))

    def _add_owner(self, owner: str) -> Command:
        return Command("SADD", (owner.encode(),), [self._owners])

    def _is_empty(self, owner: str) -> bool:
        listed, hot = self._get_keys(owner)
        return not any(self._client.read(Command("ZCARD", (), [listed]), Command("HLEN", (), [hot])))

    def list_owners(self) -> list[str]:
        """Return the names of all owners that have a conversation, sorted.

        Earlier versions did not store the names, only hashes of them. Raises `InputError` if such an owner has not
        written since, because its conversations would be missed without notice.
        """
        names = [name.decode() for name in self._client.read(Command("SMEMBERS", (), [self._owners]))[0]]
        known = {key for name in names for key in self._get_keys(name)}
        start = re.sub(r"([*?\[\]\\])", r"\\\1", self._prefix)
        unknown = {
            key for part in ("list", "hot") for key in self._client.scan(f"{start}:{{*}}:{part}".encode())
        } - known
        if unknown:
            tags = {key.rpartition(b":")[0] for key in unknown}
            raise InputError(
                f"The names of {len(tags):,} owners are unknown, because an earlier version of Longtalk wrote their "
                "conversations and stored no names. Name the owners one by one, or begin a conversation of each."
            )
        ids = self._read_ids(names)
        found = self._client.scatter(
            [Command("EXISTS", (), [Keys(self._prefix, owner, name).conversation]) for owner, name in ids]
        )
        return sorted({owner for (owner, _), exists in zip(ids, found, strict=True) if exists})

    def _read_ids(self, owners: list[str]) -> list[tuple[str, str]]:
        """Return each of these owners with the ids on its list. A conversation may have been deleted since."""
        keys = [self._get_keys(owner) for owner in owners]
        hot = self._client.scatter([Command("HKEYS", (), [key]) for _, key in keys])
        # One settled conversation is enough: it is on the list because it exists.
        settled = self._client.scatter([Command("ZRANGE", (0, 0), [key]) for key, _ in keys])
        return [
            (owner, name.decode())
            for owner, *names in zip(owners, hot, settled, strict=True)
            for name in dict.fromkeys([*names[1], *names[0]])
        ]

    def list_ids(self, owner: str) -> list[str]:
        """Return the ids of all conversations of an owner, in no particular order."""
        listed, hot = self._get_keys(owner)
        hot_ids, settled_ids = self._client.read(Command("HKEYS", (), [hot]), Command("ZRANGE", (0, -1), [listed]))
        return list(dict.fromkeys(each.decode() for each in (*hot_ids, *settled_ids)))

    def iterate_newest(self, owner: str, after: tuple[int, str] | None) -> Iterator[SortKey]:
        """Return an iterator over an owner's conversations, most recently changed first.

        The iterator starts after the conversation with the time and id `after`, or with the first one if that is None.
        Some of the conversations may have been deleted.
        """
        listed, hot = self._get_keys(owner)
        fields = self._client.read(Command("HGETALL", (), [hot]))[0]
        nonces = {name.decode(): nonce for name, nonce in zip(fields[::2], fields[1::2], strict=True)}
        times = self._read_update_times(owner, list(nonces))
        self._settle(owner, nonces, times)
        after_key = (-after[0], after[1]) if after else (-(2**62), "")
        hot_keys = sorted((-at, name) for name, at in times.items() if (-at, name) > after_key)
        settled_keys = (key for key in self._iterate_settled(listed, after_key) if key[1] not in nonces)
        return heapq.merge(hot_keys, settled_keys)

    def _read_update_times(self, owner: str, ids: list[str]) -> dict[str, int]:
        """Return the time of each conversation's last change, by id. Conversations that don't exist are left out."""
        keys = [Keys(self._prefix, owner, name).conversation for name in ids]
        replies = self._client.scatter([Command("HMGET", ("updated",), [key]) for key in keys])
        return {name: decode_time(at) for name, (at,) in zip(ids, replies, strict=True) if at is not None}

    def _iterate_settled(self, listed: bytes, after_key: SortKey) -> Iterator[SortKey]:
        """Yield the conversations of the ordered list at the key `listed` that sort after `after_key`."""
        skip = 0
        while True:
            bounds: tuple[Any, ...] = (after_key[0], "+inf", "WITHSCORES", "LIMIT", skip, PAGE)
            page = self._client.read(Command("ZRANGEBYSCORE", bounds, [listed]))[0]
            sort_keys = [(int(float(score)), name.decode()) for name, score in zip(page[::2], page[1::2], strict=True)]
            yield from (key for key in sort_keys if key > after_key)
            if len(sort_keys) < PAGE:
                return
            skip += PAGE

    def _settle(self, owner: str, nonces: dict[str, bytes], times: dict[str, int]) -> None:
        """Settle conversations without recent changes if many are hot, and remove hot ones that were never created."""
        keys, at = self._get_keys(owner), now()
        quiet = [name for name, updated in times.items() if updated < at - QUIET_MS] if len(nonces) > MAX_HOT else []
        for name in sorted(quiet, key=times.__getitem__)[:MAX_SETTLED]:
            key = Keys(self._prefix, owner, name).conversation
            updated, safe = self._client.change(Command(SETTLE, [nonces[name]], [key]))
            if safe and updated not in (b"hot", b"none"):
                self._client.read(Command(COOL, (name, nonces[name], updated), keys))
        for name in nonces.keys() - times.keys():
            if int(nonces[name].split(b"-")[0]) < at - LOST_MS:
                self._client.read(Command(COOL, (name, nonces[name], ""), keys))

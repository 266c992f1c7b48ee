"""Deletion and redaction in the Redis store, and the lookup of an entry by its id."""

from __future__ import annotations

from longtalk.stores._paths import is_on_path
from longtalk.stores.base import DeletionReceipt
from longtalk.stores.redis.commit import Changes
from longtalk.stores.redis.connection import Command, Link
from longtalk.stores.redis.tree import Keys, Tree, abouts_of, encode, id_of, rows_of, runs_of, shown_on
from longtalk.transcript.pack import checksum
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import now


def delete(link: Link, keys: Keys, tree: Tree, conversation: str) -> tuple[DeletionReceipt, Changes]:
    """Return a receipt for the deletion of a conversation, and the changes that delete it (see `Store.delete`)."""
    turns, records = link.read(keys.c, Command("HLEN", (), [keys.t]), Command("HLEN", (), [keys.h]))
    changes = Changes(keys, tree)
    for key in (*(keys.entries(segment) for segment in tree.segments), *keys.all):
        changes.add("DEL", key)
    receipt = DeletionReceipt(
        conversation=conversation,
        entries=tree.number("entries"),
        turns=turns,
        records=records,
        branches=len(tree.branches),
        at=now(),
    )
    return receipt, changes


def places_of(link: Link, keys: Keys, tree: Tree, entry: str) -> list[tuple[int, int, int]]:
    """Return each location of an entry: its segment, its position, and its index in the segment's list.

    There are several locations only if branches have given the same id to different entries.
    """
    turn, _, count = entry.rpartition("-")
    if not count.isdecimal() or not count.isascii() or len(count) > 10:
        return []
    found: list[tuple[int, int, int]] = []
    for segment, first, number in runs_of(link.read(keys.c, Command("HGET", (turn,), [keys.g]))[0]):
        if int(count) < number or segment not in tree.segments:
            continue
        position = first + int(count) - number
        at = position - tree.segments[segment].start
        value = link.read(keys.c, Command("LINDEX", (at,), [keys.entries(segment)]))[0]
        if value is not None and id_of(value) == entry:
            found.append((segment, position, at))
    return found


def redact(link: Link, keys: Keys, tree: Tree, entry: str, native: bytes) -> Changes | None:
    """Return the changes that redact an entry (see `Store.redact`), or None if the entry doesn't exist."""
    positions = places_of(link, keys, tree, entry)
    if not positions:
        return None
    changes = Changes(keys, tree)
    for segment, position, at in positions:
        key = keys.entries(segment)
        value = link.read(keys.c, Command("LINDEX", (at,), [key]))[0]
        if value is None:
            # Another process is deleting the conversation.
            return None
        changes.add("LSET", key, at, encode((*rows_of([value])[0][:-2], native, checksum(native))))
        changes.add("HDEL", keys.x, f"{segment}:{position}")
    abouts = abouts_of(link.read(keys.c, Command("HGETALL", (), [keys.h]))[0])
    left = []
    for about in abouts:
        path = tree.path(about.segment, about.position + 1) if kind_of(about.kind).quotes_entries else []
        if not any(is_on_path(path, segment, position) for segment, position, _ in positions):
            left.append(about)
        else:
            changes.add("HDEL", keys.r, about.number)
            changes.add("HDEL", keys.h, about.number)
    for name, branch in tree.branches.items():
        path = tree.path(branch.segment, branch.size)
        if any(is_on_path(path, segment, position) for segment, position, _ in positions):
            seen = " ".join(map(str, shown_on(left, path)))
            changes.add("HSET", keys.c, f"v:{name}", branch.revision + 1, f"p:{name}", seen)
    changes.add("HINCRBY", keys.c, "redacted", 1)
    return changes

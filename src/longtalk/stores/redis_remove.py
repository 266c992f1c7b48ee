"""What leaves a store in Redis for good, and where an entry is that is to leave it, or to get data of an app's own."""

from __future__ import annotations

from longtalk.pack import checksum
from longtalk.stores.base import BARE, Receipt
from longtalk.stores.redis_link import Command, Link
from longtalk.stores.redis_tree import Keys, Tree, abouts_of, encode, id_of, on, rows_of, runs_of, shown
from longtalk.stores.redis_write import Changes
from longtalk.transcript import now


def delete(link: Link, keys: Keys, tree: Tree, conversation: str) -> tuple[Receipt, Changes]:
    """See `Store.delete`: what will be gone, and how."""
    turns, records = link.read(keys.c, Command("HLEN", (), [keys.t]), Command("HLEN", (), [keys.h]))
    changes = Changes(keys, tree)
    for key in (*(keys.entries(segment) for segment in tree.segments), *keys.all):
        changes.add("DEL", key)
    receipt = Receipt(
        conversation=conversation,
        entries=tree.number("entries"),
        turns=turns,
        records=records,
        branches=len(tree.branches),
        at=now(),
    )
    return receipt, changes


def places_of(link: Link, keys: Keys, tree: Tree, entry: str) -> list[tuple[int, int, int]]:
    """Where the entries of an id are: in one place, unless two branches gave it to entries of their own.

    Segment, place, and the number in the list of the segment.
    """
    turn, _, count = entry.rpartition("-")
    if not count.isdecimal() or not count.isascii() or len(count) > 10:
        return []
    found: list[tuple[int, int, int]] = []
    for segment, first, number in runs_of(link.read(keys.c, Command("HGET", (turn,), [keys.g]))[0]):
        if int(count) < number or segment not in tree.segments:
            continue
        place = first + int(count) - number
        at = place - tree.segments[segment].start
        value = link.read(keys.c, Command("LINDEX", (at,), [keys.entries(segment)]))[0]
        if value is not None and id_of(value) == entry:
            found.append((segment, place, at))
    return found


def redact(link: Link, keys: Keys, tree: Tree, entry: str, native: bytes) -> Changes | None:
    """See `Store.redact`: the changes; None when there is no such entry."""
    places = places_of(link, keys, tree, entry)
    if not places:
        return None
    changes = Changes(keys, tree)
    for segment, place, at in places:
        key = keys.entries(segment)
        value = link.read(keys.c, Command("LINDEX", (at,), [key]))[0]
        if value is None:
            # Somebody deletes it.
            return None
        changes.add("LSET", key, at, encode((*rows_of([value])[0][:-2], native, checksum(native))))
        changes.add("HDEL", keys.x, f"{segment}:{place}")
    abouts = abouts_of(link.read(keys.c, Command("HGETALL", (), [keys.h]))[0])
    left = []
    for about in abouts:
        path = tree.path(about.segment, about.place + 1)
        if about.kind in BARE or not any(on(path, segment, place) for segment, place, _ in places):
            left.append(about)
        else:
            changes.add("HDEL", keys.r, about.number)
            changes.add("HDEL", keys.h, about.number)
    for name, branch in tree.branches.items():
        path = tree.path(branch.segment, branch.size)
        if any(on(path, segment, place) for segment, place, _ in places):
            seen = " ".join(map(str, shown(left, path)))
            changes.add("HSET", keys.c, f"v:{name}", branch.revision + 1, f"p:{name}", seen)
    changes.add("HINCRBY", keys.c, "redacted", 1)
    return changes

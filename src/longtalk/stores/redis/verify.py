"""Integrity checks of a conversation in Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from longtalk.stores.redis.connection import Command, Link
from longtalk.stores.redis.tree import (
    Damaged,
    Keys,
    Tree,
    about_of,
    begun_of,
    meta_of,
    name_of,
    record_of,
    request_of,
    rows_of,
    runs_of,
    turn_of,
)
from longtalk.transcript.pack import checksum

STEP = 1000
"""The number of entries read per request."""


def problems(link: Link, keys: Keys, tree: Tree) -> Iterator[str]:
    """Yield a description of each problem in the stored data (see `Store.verify`).

    Problems are missing entries, entries whose parent is not the entry before them, wrong checksums and unreadable
    values.
    """
    needed = dict.fromkeys(tree.segments, 0)
    for branch in tree.branches.values():
        for span in tree.path(branch.segment, branch.size):
            needed[span.segment] = max(needed[span.segment], span.stop)
    ids: dict[int, list[str]] = {}
    for segment in tree.segments.values():
        ids[segment.number] = []
        yield from _entries(link, keys, segment.number, segment.start, ids[segment.number])
        if segment.start + len(ids[segment.number]) < needed[segment.number]:
            yield f"entries are missing before place {needed[segment.number]}"
    for branch in tree.branches.values():
        last = [
            each
            for span in tree.path(branch.segment, branch.size)
            for each in ids[span.segment][: span.stop - span.start]
        ]
        if (last[-1] if last else None) != branch.entry:
            yield f"the branch {branch.name!r} does not end with {branch.entry!r}"
    said = {each.rpartition("-")[0] for some in ids.values() for each in some if each}
    yield from _values(link, keys, tree, said)


def _values(link: Link, keys: Keys, tree: Tree, said: set[str]) -> Iterator[str]:
    """Yield the problems in all stored values except the entries. `said` contains the turn ids of the entries."""
    hashes = (keys.t, keys.r, keys.q, keys.x, keys.g, keys.h)
    found = [list(_pairs(fields)) for fields in link.read(keys.c, *(Command("HGETALL", (), [key]) for key in hashes))]
    turns, records, requests, metas, runs, abouts = found
    begun = link.read(keys.c, Command("ZRANGE", (0, -1), [keys.f]))[0]
    readers: Sequence[tuple[str, Sequence[tuple[bytes, bytes]], Callable[[bytes, bytes], object]]] = (
        ("data on the entry at", metas, lambda _, value: meta_of(value)),
        ("turn", turns, lambda _, value: turn_of(value)),
        ("place of the turn", runs, lambda name, value: (name_of(name), runs_of(value))),
        ("begin of a turn at", [(each, each) for each in begun], lambda _, value: begun_of(value)),
        ("record", records, lambda _, value: record_of(value)),
        ("place of the record", abouts, about_of),
        ("request", requests, lambda name, value: request_of(name_of(name), value)),
    )
    try:
        tree.info("")
    except Damaged as problem:
        yield f"the conversation: {problem.what}"
    for what, pairs, read in readers:
        for name, value in pairs:
            try:
                read(name, value)
            except Damaged as problem:
                yield f"the {what} {name.decode(errors='replace')!r}: {problem.what}"
    known = {name for name, _ in runs} & {each.split(b":", 2)[-1] for each in begun}
    for turn in sorted(turn for turn in said if turn.encode() not in known):
        yield f"where the turn {turn!r} is, is not known any more"
    held = {number for number, _ in records} & {number for number, _ in abouts}
    for branch in tree.branches.values():
        if not held.issuperset(b"%d" % number for number in branch.records):
            yield f"records of the branch {branch.name!r} are missing"


def _entries(link: Link, keys: Keys, segment: int, start: int, ids: list[str]) -> Iterator[str]:
    """Yield the problems in the entries of a segment, and append the id of each entry to `ids`."""
    parent: str | None = None
    while values := link.read(keys.c, Command("LRANGE", (len(ids), len(ids) + STEP - 1), [keys.entries(segment)]))[0]:
        for value in values:
            position = start + len(ids)
            try:
                turn, number, before, *_, native, crc = rows_of([value])[0]
            except Damaged as problem:
                yield f"the entry at place {position}: {problem.what}"
                ids.append("")
                parent = None
                continue
            if parent and before != parent:
                yield f"the entry at place {position} does not follow the one before it"
            if crc != checksum(native):
                yield f"the entry at place {position}: its checksum does not hold"
            parent = f"{turn}-{number}"
            ids.append(parent)


def _pairs(fields: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(fields[::2], fields[1::2], strict=True)

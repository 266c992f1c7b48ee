"""Integrity checks of a conversation in Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from longtalk.stores.redis.command import Command
from longtalk.stores.redis.connection import Client
from longtalk.stores.redis.tree import (
    Damaged,
    Keys,
    Tree,
    decode_location,
    decode_meta,
    decode_name,
    decode_record,
    decode_request,
    decode_rows,
    decode_runs,
    decode_turn,
    decode_turn_start,
)
from longtalk.transcript.pack import has_checksum

PAGE = 1000
"""The number of entries read per request."""


def find_problems(client: Client, keys: Keys, tree: Tree) -> Iterator[str]:
    """Yield a description of each problem in a conversation's stored data (see `Store.verify`).

    Problems are missing values, values that can't be decoded, wrong checksums, and entries whose parent is not the
    entry before them.
    """
    needed = dict.fromkeys(tree.segments, 0)
    for branch in tree.branches.values():
        for span in tree.trace_path(branch.segment, branch.size):
            needed[span.segment] = max(needed[span.segment], span.stop)
    ids: dict[int, list[str]] = {}
    for segment in tree.segments.values():
        ids[segment.number] = []
        yield from _check_entries(client, keys, segment.number, segment.start, ids[segment.number])
        if segment.start + len(ids[segment.number]) < needed[segment.number]:
            yield f"entries are missing before position {needed[segment.number]}"
    for branch in tree.branches.values():
        last = [
            each
            for span in tree.trace_path(branch.segment, branch.size)
            for each in ids[span.segment][: span.stop - span.start]
        ]
        if (last[-1] if last else None) != branch.entry:
            end = f"end with entry {branch.entry!r}" if branch.entry else "have no entries"
            yield f"branch {branch.name!r} should {end}, but doesn't"
    turns = {each.rpartition("-")[0] for some in ids.values() for each in some if each}
    yield from _check_values(client, keys, tree, turns)


def _check_values(client: Client, keys: Keys, tree: Tree, turns_of_entries: set[str]) -> Iterator[str]:
    """Yield the problems in all stored values except entries. `turns_of_entries` are the turn ids in the entries."""
    hashes = (keys.turns, keys.records, keys.requests, keys.metas, keys.runs, keys.locations)
    found = [list(_to_pairs(fields)) for fields in client.read(*(Command("HGETALL", (), [key]) for key in hashes))]
    turns, records, requests, metas, runs, locations = found
    turn_starts = client.read(Command("ZRANGE", (0, -1), [keys.turn_starts]))[0]
    decoders: Sequence[tuple[str, Sequence[tuple[bytes, bytes]], Callable[[bytes, bytes], object]]] = (
        ("the metadata of the entry at", metas, lambda _, value: decode_meta(value)),
        ("turn", turns, lambda _, value: decode_turn(value)),
        ("the positions of turn", runs, lambda name, value: (decode_name(name), decode_runs(value))),
        ("the start of a turn", [(each, each) for each in turn_starts], lambda _, value: decode_turn_start(value)),
        ("record", records, lambda _, value: decode_record(value)),
        ("the position of record", locations, decode_location),
        ("request", requests, lambda name, value: decode_request(decode_name(name), value)),
    )
    try:
        tree.build_info("")
    except Damaged as problem:
        yield f"the conversation: {problem.damage}"
    for label, pairs, decode in decoders:
        for name, value in pairs:
            try:
                decode(name, value)
            except Damaged as problem:
                yield f"{label} {name.decode(errors='replace')!r}: {problem.damage}"
    known = {name for name, _ in runs} & {each.split(b":", 2)[-1] for each in turn_starts}
    for turn in sorted(turn for turn in turns_of_entries if turn.encode() not in known):
        yield f"the positions of turn {turn!r} are missing"
    stored = {number for number, _ in records} & {number for number, _ in locations}
    for branch in tree.branches.values():
        if not stored.issuperset(b"%d" % number for number in branch.records):
            yield f"records of branch {branch.name!r} are missing"


def _check_entries(client: Client, keys: Keys, segment: int, start: int, ids: list[str]) -> Iterator[str]:
    """Yield the problems in the entries of a segment, and append the id of each entry to `ids`."""
    parent: str | None = None
    while values := client.read(Command("LRANGE", (len(ids), len(ids) + PAGE - 1), [keys.get_entries_key(segment)]))[0]:
        for value in values:
            position = start + len(ids)
            try:
                turn, number, before, *_, native, crc = decode_rows([value])[0]
            except Damaged as problem:
                yield f"the entry at position {position}: {problem.damage}"
                ids.append("")
                parent = None
                continue
            if parent and before != parent:
                yield f"the parent of the entry at position {position} is not the entry before it"
            if not has_checksum(native, crc):
                yield f"the entry at position {position} has a wrong checksum"
            parent = f"{turn}-{number}"
            ids.append(parent)


def _to_pairs(fields: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(fields[::2], fields[1::2], strict=True)

"""Indexes of whole conversations, kept in a cache from turn to turn.

Before a cached index is used, it is compared with the branch or the state: what has been appended since is added, and
what is no longer there, after a redaction or because another branch is searched, is removed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence

from longtalk.memory.recall.index import Unit
from longtalk.memory.recall.index_cache import CachedIndex, IndexCache
from longtalk.memory.recall.protocol import SearchableStore
from longtalk.memory.recall.units import to_unit
from longtalk.transcript.pack import Entry, Pack
from longtalk.transcript.transcript import Transcript

__all__ = ["index_branch", "index_state"]

_MAX_SUDDEN = 1_000
"""The maximum number of entries of a state that are indexed when the state is first seen."""


def index_branch(
    cache: IndexCache, store: SearchableStore, names: tuple[str, str, str], size: int, *, meaning: bool
) -> CachedIndex:
    """Return an index of the first `size` entries of a branch in a store. `names` are owner, conversation, branch."""
    key = (id(store), *names[:2], meaning, names[2])
    index = cache.take(key, meaning=meaning)
    pack = store.read(*names, 0, size)
    digests = [_compute_digest(pack, i) for i in range(len(pack))]
    same = next((i for i, pair in enumerate(zip(index.digests, digests, strict=False)) if pair[0] != pair[1]), None)
    index.truncate_entries(min(len(index.digests), len(digests)) if same is None else same)
    _append_entries(index, pack, index.count, lambda i: i)
    index.digests = digests
    index.read_units = _make_store_reader(store, names)
    return index


def index_state(cache: IndexCache, transcript: Transcript, *, meaning: bool) -> CachedIndex | None:
    """Return an index of the entries of a state; None if it has many and this process has not seen it before.

    A state that a process sees only once is not worth an index of all its entries.
    """
    pack, size = transcript.pack, len(transcript)
    index_of_grown, rest, checksum = pack.grow(transcript.fresh)
    key = ("state", *index_of_grown.turns[:1], transcript.shed.entries, meaning, "")
    index = cache.take(key, meaning=meaning)

    def continues(count: int, known: int) -> bool:
        """Return True if the first `count` entries have the checksum `known`, by the checksum of all entries."""
        if count > len(pack):
            return False
        after = memoryview(pack.array)[pack.offsets()[count] - 1 : -1] if count else memoryview(pack.array)[1:-1]
        return zlib.crc32(rest[:-1], zlib.crc32(after, known)) == checksum

    same = max((count for count, known in index.marks if continues(count, known)), default=0)
    if not same and size > _MAX_SUDDEN and not meaning:
        index = CachedIndex(key)
        index.marks = [(size, checksum)]
        cache.put(index)
        return None
    same = min(same, index.count)
    index.truncate_entries(same, transcript.position(same))
    grown = Pack(index_of_grown, bytes(pack.array)[:-1] + rest, checksum) if transcript.fresh else pack
    _append_entries(index, grown, same, transcript.position)
    index.add_mark(size, checksum)
    index.read_units = lambda positions: _to_units((at, transcript[transcript.index_of(at)]) for at in positions)
    return index


def _append_entries(index: CachedIndex, pack: Pack, start: int, to_position: Callable[[int], int]) -> None:
    """Add the entries of a pack from index `start` on."""
    for i in range(start, len(pack)):
        unit = to_unit(to_position(i), pack.entry(i))
        if unit is not None:
            index.add(unit)
    index.count = len(pack)


def _compute_digest(pack: Pack, i: int) -> tuple[str, int]:
    """Return the id and a checksum of an entry of a pack."""
    return pack.id(i), zlib.crc32(pack.natives(i, i + 1))


def _make_store_reader(
    store: SearchableStore, names: tuple[str, str, str]
) -> Callable[[Sequence[int]], Iterable[Unit]]:
    """Return a function that reads the units at some positions of a branch."""

    def read(positions: Sequence[int]) -> Iterable[Unit]:
        picked = store.pick(*names, [(position, position + 1) for position in positions])
        return _to_units((at, entry) for at, entries in zip(positions, picked, strict=True) for entry in entries)

    return read


def _to_units(entries: Iterable[tuple[int, Entry]]) -> Iterable[Unit]:
    return (unit for position, entry in entries if (unit := to_unit(position, entry)) is not None)

"""Indexes of whole conversations, kept in a cache from turn to turn.

Before a cached index is used, it is compared with the branch or the state: what has been appended since is added, and
what is no longer there, after a redaction or because another branch is searched, is removed. The index of a branch is
stored in segments (`segments.py`), so that another process need not index the entries again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from longtalk.memory.recall.index import Unit
from longtalk.memory.recall.index_cache import CachedIndex, IndexCache, SegmentKey
from longtalk.memory.recall.meaning import complete_norms
from longtalk.memory.recall.protocol import Placed, SearchableStore
from longtalk.memory.recall.segments import KIND, Segment, append_segments, decode_segment, encode_segment
from longtalk.memory.recall.units import to_unit
from longtalk.transcript.pack import Entry, Pack
from longtalk.transcript.transcript import Record, Transcript, now

__all__ = ["estimate_terms", "index_branch", "index_state"]

_SEGMENT_ENTRIES = 128
_SEGMENT_BYTES = 48_000
"""A segment is stored as soon as the entries that are in none are that many, or have that many bytes."""
_MAX_SUDDEN = 1_000
"""The maximum number of entries of a state that are indexed when the state is first seen."""


def index_branch(
    cache: IndexCache,
    store: SearchableStore,
    names: tuple[str, str, str],
    size: int,
    newest: Record | None,
    *,
    meaning: bool,
) -> CachedIndex:
    """Return an index of the first `size` entries of a branch in a store. `names` are owner, conversation, branch.

    `newest` is the newest record with a segment on the branch. As long as it is there, none of the entries up to its
    own has changed, so only the later ones have to be read.
    """
    key = (id(store), *names[:2], meaning, names[2])
    index = cache.take(key, meaning=meaning)
    base = _find_stored(index, newest, size)
    if base is None:
        base = _load_segments(index, store.records(*names, KIND), size)
    pack = store.read(*names, base, size)
    digests = {base + i: (pack.id(i), zlib.crc32(pack.natives(i, i + 1))) for i in range(len(pack))}
    same = next((i for i in digests if index.digests.get(i) != digests[i]), size)
    index.truncate_entries(same)
    _append_entries(index, pack, same - base, lambda i: base + i)
    index.count, index.digests = size, digests
    complete_norms(index)
    index.new_segments = tuple(_cut_segments(index, pack, base))
    index.read_units = _make_store_reader(store, names)
    return index


def estimate_terms(newest: Record | None, size: int) -> float | None:
    """Return the approximate number of terms of the first `size` entries of a branch, counting repeated ones.

    It is derived from the newest record with a segment, and None if there is no such record that can be read.
    """
    segment = decode_segment(newest.data) if newest is not None else None
    return segment.terms / segment.stop * size if segment is not None else None


def _find_stored(index: CachedIndex, newest: Record | None, size: int) -> int | None:
    """Return the position up to which a cached index is known to be valid; None if the segments have to be read."""
    index.segments += [_identify(record, position + 1) for record, position in index.new_segments]
    index.new_segments = ()
    if newest is None:
        index.segments = []
        return 0
    key = _identify(newest, 0)
    known = next((i for i, each in enumerate(index.segments) if each[1:] == key[1:]), None)
    if known is None:
        return None
    index.segments = [each for each in index.segments[: known + 1] if each.stop <= size]
    return index.segments[-1].stop if index.segments else 0


def _load_segments(index: CachedIndex, records: Sequence[Placed], size: int) -> int:
    """Make an index have the segments of these records, and return the position up to which they go.

    What the index has in common with the segments is kept.
    """
    found: dict[int, tuple[SegmentKey, Segment]] = {}
    for placed in records:
        segment = decode_segment(placed.record.data)
        if segment is not None and segment.stop == placed.position + 1 <= size:
            found[segment.start] = (_identify(placed.record, segment.stop), segment)
    position, same = 0, 0
    while position in found and index.segments[same : same + 1] == [found[position][0]]:
        position, same = found[position][1].stop, same + 1
    index.truncate_entries(position)
    rest: list[tuple[SegmentKey, Segment]] = []
    while position in found:
        rest.append(found[position])
        position = rest[-1][1].stop
    count = append_segments(index, [segment for _, segment in rest])
    index.segments += [key for key, _ in rest[:count]]
    position = index.segments[-1].stop if index.segments else 0
    index.restore_topic()
    index.count = position
    return position


def _cut_segments(index: CachedIndex, pack: Pack, base: int) -> Iterator[tuple[Record, int]]:
    """Yield records with the segments that the entries of a pack fill, each with its position.

    The first entry of the pack is at position `base`. The entries after the last whole segment remain.
    """
    offsets, start = pack.offsets(), 0
    for stop in range(1, len(pack) + 1):
        if stop - start >= _SEGMENT_ENTRIES or offsets[stop] - offsets[start] >= _SEGMENT_BYTES:
            data = encode_segment(index, base + start, base + stop)
            yield Record(kind=KIND, entry=pack.id(stop - 1), at=now(), data=data), base + stop - 1
            start = stop


def _identify(record: Record, stop: int) -> SegmentKey:
    return SegmentKey(stop, record.entry, record.at, zlib.crc32(record.data))


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

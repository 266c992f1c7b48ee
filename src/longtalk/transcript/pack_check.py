"""Check packs that come from outside, such as those in states: the index and the array must fit together.

Each entry is then exactly one JSON object, so no entry can alter the request around it.
"""

from __future__ import annotations

from collections.abc import Container
from operator import add, itemgetter

from longtalk._util import json_bytes
from longtalk.transcript.pack import ANSWERS, OWN, Pack
from longtalk.transcript.pack_index import MAX_COUNT, read_column

# Larger arrays are checked entry by entry, which is slower but needs little memory.
_MAX_AT_ONCE = 4 * 1024 * 1024


def check_pack(pack: Pack, wires: Container[str], *, is_authentic: bool = False) -> None:
    """Check that the index and the array of a pack match.

    Raises `ValueError` if they don't, and `LookupError` if an entry has a wire that is not in `wires`. With
    `is_authentic`, the JSON itself is not checked again: that was done before the pack was sealed.
    """
    index, size = pack.index, len(pack)
    counts, sizes = read_column("I", index.counts), read_column("I", index.sizes)
    if (
        not size == len(sizes) == sum(counts) == len(index.times) / 8
        or len(index.totals) not in (0, 8 * size)
        or not len(index.turns) == len(counts) == len(index.firsts) / 4
    ):
        raise ValueError("the columns of the index differ in length")
    index.check_ids(counts, len(pack.array))
    if 0 in counts or not all(0 <= i < size for i in (*index.marks, *index.bounds, *index.parents)):
        raise ValueError("a number in the index is out of range")
    if max(map(add, read_column("I", index.firsts), counts), default=0) > 2**32:
        raise ValueError("the number of an entry is out of range")
    totals = read_column("Q", index.totals).tolist()
    if totals != sorted(totals) or max(totals[-1:], default=0) > MAX_COUNT:
        raise ValueError("the token counts decrease or are too large")
    # 47 bits of milliseconds last until the year 6429, so every time can be converted to a date.
    if not index.times[6::8].count(0) == index.times[7::8].count(0) == size or not index.times[5::8].isascii():
        raise ValueError("the time of an entry is out of range")
    if size and max(index.shape) >= len(index.shapes):
        raise ValueError("the index refers to an unknown combination of kind, role and wire")
    for kind, role, wire in index.shapes:
        if wire not in wires:
            raise LookupError(wire)
        if not is_possible(kind, role, wire):
            raise ValueError(f"an entry has an impossible combination: kind {kind!r}, role {role!r}, wire {wire!r}")
    if len(pack.array) != (1 + sum(sizes) if size else 2) or (size and not sizes[-1]):
        raise ValueError("its entries are not at the offsets in its index")
    if is_authentic:
        return
    _check_array(pack, sizes.tolist())
    for i in pack.find(lambda _, wire: wire == OWN, 0, size):
        entry = pack.entry(i)
        members = json_bytes.value(entry.native)
        if not isinstance(members.get("text"), str) or (entry.kind == "event" and "source" not in members):
            raise ValueError("an event or a system message has no text")


def is_possible(kind: str, role: str, wire: str) -> bool:
    """Return True if an entry can have this combination: only Longtalk's own wire has events, and it has no answers."""
    return role not in ANSWERS if wire == OWN else kind == "message"


def _check_array(pack: Pack, sizes: list[int]) -> None:
    """Raise `ValueError` unless the array has exactly one JSON object per entry, at the indexed offsets."""
    data, starts = pack.array, pack.offsets()
    if len(pack) and bytes(itemgetter(0, *starts[:-1])(data)) != b"[" + b"{" * len(pack):
        raise ValueError("an entry is not a JSON object")
    if len(data) <= _MAX_AT_ONCE:
        fits = [length + 1 for length in json_bytes.lengths(data)] == sizes
    else:
        borders = b"".join(data[start - 2 : start] for start in starts[1:])
        fits = borders == b"}," * (len(pack) - 1) + b"}]"
        for i in range(len(pack)):
            json_bytes.check_object(pack.natives(i, i + 1))
    if not fits:
        raise ValueError("the entries are not at the offsets in the index")

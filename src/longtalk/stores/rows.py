"""What stores that keep rows have in common: entries as columns, and an app's own data as JSON."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from longtalk.errors import InputError
from longtalk.pack import Index, Kind, Pack, checksum, packed


def from_rows(rows: Sequence[tuple[Any, ...]]) -> Pack:
    """Entries that lie in rows as a pack."""
    turn, number, parent, kind, role, wire, at, mark, bound, tokens, native = zip(*rows, strict=True)
    turns: list[str] = []
    firsts, counts = array("I"), array("I")
    last, following = None, -1
    for name, count in zip(turn, number, strict=True):
        if name == last and count == following:
            counts[-1] += 1
        else:
            turns.append(name)
            firsts.append(count)
            counts.append(1)
            last = name
        following = count + 1
    codes: dict[tuple[Kind, str, str], int] = {}
    shape = bytes([codes.setdefault(each, len(codes)) for each in zip(kind, role, wire, strict=True)])
    data = b"[%s]" % b",".join(native)
    index = Index(
        parent=parent[0],
        turns=tuple(turns),
        firsts=packed(firsts),
        counts=packed(counts),
        shapes=tuple(codes),
        shape=shape,
        sizes=packed(array("I", [len(each) + 1 for each in native])),
        times=packed(array("q", at)),
        marks={i: each for i, each in enumerate(mark) if each},
        bounds={i: each for i, each in enumerate(bound) if each},
        totals=packed(array("Q", accumulate(tokens))),
    )
    return Pack(index, data, checksum(data))


def meta_in(meta: Mapping[str, Any]) -> bytes:
    """The app's own data as JSON."""
    try:
        return json.dumps(meta, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(f"An app's own data must be JSON: {problem}.") from None


def meta_out(data: bytes) -> dict[str, Any]:
    held: dict[str, Any] = json.loads(data)
    return held

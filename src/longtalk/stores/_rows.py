"""Conversions that several stores share: database rows to packs of entries, and metadata to JSON and back."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from longtalk.errors import InputError
from longtalk.transcript.pack import Pack, checksum
from longtalk.transcript.pack_index import Kind, PackIndex, pack_column


def pack_from_rows(rows: Sequence[tuple[Any, ...]]) -> Pack:
    """Build a pack from database rows, one for each entry.

    The columns are: turn, number in the turn, parent, kind, role, wire, time, mark, bound, tokens and native JSON.
    """
    turn, number, parent, kind, role, wire, at, mark, bound, tokens, native = zip(*rows, strict=True)
    turns: list[str] = []
    firsts, counts = array("I"), array("I")
    last_turn, next_number = None, -1
    for name, count in zip(turn, number, strict=True):
        if name == last_turn and count == next_number:
            counts[-1] += 1
        else:
            turns.append(name)
            firsts.append(count)
            counts.append(1)
            last_turn = name
        next_number = count + 1
    codes: dict[tuple[Kind, str, str], int] = {}
    shape = bytes([codes.setdefault(each, len(codes)) for each in zip(kind, role, wire, strict=True)])
    data = b"[%s]" % b",".join(native)
    index = PackIndex(
        parent=parent[0],
        turns=tuple(turns),
        firsts=pack_column(firsts),
        counts=pack_column(counts),
        shapes=tuple(codes),
        shape=shape,
        sizes=pack_column(array("I", [len(each) + 1 for each in native])),
        times=pack_column(array("q", at)),
        marks={i: each for i, each in enumerate(mark) if each},
        bounds={i: each for i, each in enumerate(bound) if each},
        totals=pack_column(array("Q", accumulate(tokens))),
    )
    return Pack(index, data, checksum(data))


def to_ascii_json(meta: Mapping[str, Any]) -> bytes:
    """Encode an app's metadata as JSON in ASCII. Raise `InputError` if the metadata can't be represented as JSON."""
    try:
        return json.dumps(meta, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(f"Metadata must be JSON: {problem}.") from None


def to_utf8_json(meta: Mapping[str, Any]) -> bytes:
    """Encode an app's metadata as JSON in UTF-8, for stores and exports that people read.

    If the metadata has unpaired surrogates, which UTF-8 can't encode, the JSON is in ASCII instead. Raises `InputError`
    if the metadata can't be represented as JSON.
    """
    try:
        return json.dumps(meta, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(meta, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(f"Metadata must be JSON: {problem}.") from None


def meta_from_json(data: bytes) -> dict[str, Any]:
    """Decode metadata from JSON written by `to_ascii_json` or `to_utf8_json`."""
    # Most conversations have none, and a list has many of them.
    meta: dict[str, Any] = {} if data == b"{}" else json.loads(data)
    return meta

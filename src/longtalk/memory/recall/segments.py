"""Segments: consecutive parts of a recall index, as they are stored in records beside the conversation.

A segment holds what the index has of some consecutive entries, without their texts. It is attached to the last of them,
so it is on every path that includes that entry, and it is removed if one of them is redacted. Terms and names have the
numbers of the whole index, in which they are numbered by their first occurrence, and a segment lists those that are new
in it. So a segment fits any index of the entries before it.

The data is compressed. Data of another version, or that can't be read, is ignored: the entries are indexed again.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import DTypeLike

from longtalk._util import json_bytes, typed_json
from longtalk.memory.recall.columns import Array
from longtalk.memory.recall.index import UNKNOWN, RecallIndex
from longtalk.memory.recall.vocabulary import Vocabulary

__all__ = ["KIND", "Segment", "append_segments", "decode_segment", "encode_segment"]

KIND = "recall"
"""The record kind of these records."""
VERSION = 2
"""The version of the format, of the terms and of the topics. It changes whenever an entry would be indexed differently.
"""
_MAX_BYTES = 64_000_000  # of a segment's data, uncompressed
_TEXTS = ("terms", "words", "names")
_DTYPES = {
    **dict.fromkeys(("positions", "speakers", "lengths", "part_counts", "labels"), np.int32),
    **dict.fromkeys(("part_stops", "sizes", "part_words", "label_words", "word_terms"), np.int32),
    "times": np.int64,
    "flags": np.uint8,
    "traits": np.uint8,
    "norms": np.float32,
}
_ASSISTANT, _ONE_PART, _SESSION, _TOPIC = 1, 2, 4, 8


class Segment(msgspec.Struct, frozen=True):
    """A segment: the entries from position `start` up to `stop`, and their part of the index, compressed."""

    version: int
    start: int
    stop: int
    data: bytes


class _Columns(msgspec.Struct, array_like=True):
    """The data of a segment. Columns of numbers are split into planes of equal bytes, which compress better."""

    terms: bytes
    """The terms that are new in this segment, one per line."""
    words: bytes
    """The words that are new in this segment, one per line."""
    word_terms: bytes
    """For each of them, the number of its term."""
    names: bytes
    """The names of participants that are new in this segment, one per line."""
    positions: bytes
    times: bytes
    flags: bytes
    speakers: bytes
    lengths: bytes
    part_counts: bytes
    """For each unit, the number of its parts."""
    part_stops: bytes
    traits: bytes
    sizes: bytes
    """For each part, the number of its terms."""
    part_words: bytes
    norms: bytes
    labels: bytes
    """For each unit, the number of its labels."""
    label_words: bytes


def encode_segment(index: RecallIndex, start: int, stop: int) -> bytes:
    """Return the segment of the entries from position `start` up to `stop`, which an index has, as a record's data."""
    low, high = (index.measure(int(np.searchsorted(index.positions.values, each))) for each in (start, stop))
    units, parts, labels = slice(low.units, high.units), slice(low.parts, high.parts), slice(low.labels, high.labels)
    flags = (
        _ASSISTANT * index.is_assistant.values[units]
        + _ONE_PART * index.has_one_part.values[units]
        + _SESSION * _find_steps(index.sessions.values, low.units, high.units)
        + _TOPIC * _find_steps(index.topics.values, low.units, high.units)
    )
    columns = _Columns(
        terms=_pack_texts(index.vocabulary.terms[low.terms : high.terms]),
        words=_pack_texts(index.words.terms[low.words : high.words]),
        word_terms=_pack(index.word_terms.values[low.words : high.words], np.int32),
        names=_pack_texts(index.names[low.names : high.names]),
        positions=_pack(index.positions.values[units] - start, np.int32),
        times=_pack(index.times.values[units], np.int64),
        flags=_pack(flags, np.uint8),
        speakers=_pack(index.speakers.values[units], np.int32),
        lengths=_pack(index.lengths.values[units], np.int32),
        part_counts=_pack(np.diff(index.first_parts.values[units], append=high.parts), np.int32),
        part_stops=_pack(index.part_stops.values[parts], np.int32),
        traits=_pack(index.traits.values[parts], np.uint8),
        sizes=_pack(index.postings.get_sizes()[parts], np.int32),
        part_words=_pack(index.part_words.values[low.part_words : high.part_words], np.int32),
        norms=_pack(index.norms.values[parts], np.float32),
        labels=_pack(
            np.bincount(index.label_units.values[labels] - low.units, minlength=high.units - low.units), np.int32
        ),
        label_words=_pack(index.label_words.values[labels], np.int32),
    )
    return json_bytes.encode(Segment(VERSION, start, stop, zlib.compress(msgspec.msgpack.encode(columns))))


def decode_segment(data: bytes) -> Segment | None:
    """Return the segment in the data of a record; None if it can't be read or has another version."""
    try:
        segment = typed_json.decode(data, Segment)
    except (ValueError, RecursionError):
        return None
    return segment if segment.version == VERSION and 0 <= segment.start < segment.stop else None


def append_segments(index: RecallIndex, segments: Sequence[Segment]) -> int:
    """Add the units of segments that follow each other to an index of the entries before them.

    Return the number of segments that were added: all before the first one whose data does not fit.
    """
    found: list[dict[str, Any]] = []
    for segment in segments:
        try:
            found.append(_unpack_segment(segment))
        except (ValueError, zlib.error):
            break
    try:
        _append(index, found)
    except (ValueError, IndexError):
        pass
    else:
        return len(found)
    # At least one does not fit: those before it are added one by one.
    for count, columns in enumerate(found):
        try:
            _append(index, [columns])
        except (ValueError, IndexError):
            return count
    return len(found)


def _unpack_segment(segment: Segment) -> dict[str, Any]:
    """Return the columns of a segment as lists and arrays. Raise `ValueError` or `zlib.error` if they can't be read."""
    inflater = zlib.decompressobj()
    unpacked = inflater.decompress(segment.data, _MAX_BYTES)
    if not inflater.eof:
        raise ValueError("the data of the segment is too long or ends too early")
    columns = msgspec.msgpack.decode(unpacked, type=_Columns)
    found: dict[str, Any] = {name: _unpack_texts(getattr(columns, name)) for name in _TEXTS}
    found |= {name: _unpack(getattr(columns, name), dtype) for name, dtype in _DTYPES.items()}
    found["positions"] = segment.start + found["positions"]
    if not _is_within(found["positions"], segment.start, segment.stop):
        raise ValueError("the segment has positions of other entries")
    return found


def _append(index: RecallIndex, segments: list[dict[str, Any]]) -> None:
    """Add the units of unpacked segments. Raise `ValueError` if they do not fit; then the index is unchanged."""
    if not segments:
        return
    terms, words, names = ([text for each in segments for text in each[name]] for name in _TEXTS)
    columns = {name: np.concatenate([each[name] for each in segments]) for name in _DTYPES}
    positions, flags, labels = columns["positions"], columns.pop("flags"), columns["labels"]
    part_counts, part_stops, sizes = columns["part_counts"], columns["part_stops"], columns["sizes"]
    word_terms, part_words = columns.pop("word_terms"), columns["part_words"]
    norms, label_words = columns["norms"], columns["label_words"]
    # Checked first, because the numbers of parts decide how much memory is needed.
    if len(part_counts) and (int(part_counts.min()) <= 0 or int(part_counts.sum()) != len(part_stops)):
        raise ValueError("the parts of the segment do not fit its units")
    if not len(index) and len(flags) and ~flags[0] & (_SESSION | _TOPIC):
        raise ValueError("the first unit of the index begins no session")
    units, term_count = len(positions), len(index.vocabulary.terms) + len(terms)
    word_count = len(index.words.terms) + len(words)
    part_units = np.repeat(np.arange(units), part_counts)
    by_unit = (flags, labels, part_counts, *(columns[name] for name in ("times", "speakers", "lengths")))
    fits = (
        {len(each) for each in by_unit} == {units}
        and len(part_units) == len(part_stops) == len(sizes) == len(columns["traits"]) == len(norms)
        and min(int(each.min(initial=0)) for each in (sizes, labels, columns["lengths"])) >= 0
        and bool(((norms == UNKNOWN) | (norms >= 0)).all() and np.isfinite(norms).all())
        and len(part_words) == sizes.sum()
        and len(label_words) == labels.sum()
        and len(word_terms) == len(words)
        and _are_new(terms, index.vocabulary)
        and _are_new(words, index.words)
        and _is_within(part_words, 0, word_count)
        and _is_within(label_words, 0, word_count)
        and _is_within(word_terms, 0, term_count)
        and bool(np.isin(np.arange(term_count - len(terms), term_count), word_terms).all())
        and _is_within(columns["speakers"], -1, len(index.names) + len(names))
        and bool((np.diff(positions) > 0).all())
    )
    if not fits:
        raise ValueError("the columns of the segment do not fit together")
    part_starts = np.append(0, part_stops[:-1])[: len(part_stops)]
    part_starts[np.flatnonzero(np.diff(part_units, prepend=-1))] = 0
    if (part_starts > part_stops).any():
        raise ValueError("the parts of the segment overlap")
    index.append_terms(terms, words, word_terms)
    index.names += names
    index.append_columns(
        **columns,
        is_assistant=(flags & _ASSISTANT) > 0,
        has_one_part=(flags & _ONE_PART) > 0,
        sessions=np.cumsum((flags & _SESSION) > 0),
        topics=np.cumsum((flags & _TOPIC) > 0),
        part_starts=part_starts,
    )


def _is_within(values: Array, first: int, stop: int) -> bool:
    """Return True if all values are at least `first` and less than `stop`."""
    return not len(values) or (int(values.min()) >= first and int(values.max()) < stop)


def _are_new(texts: list[str], known: Vocabulary) -> bool:
    """Return True if the texts are distinct and none of them is known yet."""
    return len(set(texts)) == len(texts) and known.numbers.keys().isdisjoint(texts)


def _find_steps(values: Array, start: int, stop: int) -> Array:
    """Return, for each value from `start` to `stop`, 1 if it differs from the one before it, else 0."""
    steps: Array = np.diff(values[start:stop], prepend=values[start - 1] if start else -1) > 0
    return steps


def _pack(values: Array, dtype: DTypeLike) -> bytes:
    """Return numbers as bytes: the first byte of each, then the second of each, and so on."""
    little = values.astype(np.dtype(dtype).newbyteorder("<"))
    return little.view(np.uint8).reshape(len(little), little.itemsize).T.tobytes()


def _unpack(data: bytes, dtype: DTypeLike) -> Array:
    """Return the numbers in bytes that `_pack` made."""
    if not data:
        return np.empty(0, dtype)
    kind = np.dtype(dtype).newbyteorder("<")
    planes = np.frombuffer(data, np.uint8).reshape(kind.itemsize, -1)
    return np.ascontiguousarray(planes.T).reshape(-1).view(kind).astype(dtype, copy=False)


def _pack_texts(texts: list[str]) -> bytes:
    return "\n".join(texts).encode("utf-8", "surrogatepass")


def _unpack_texts(data: bytes) -> list[str]:
    return data.decode("utf-8", "surrogatepass").split("\n") if data else []

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
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

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
VERSION = 3
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
}
_WIDTHS = (1, 2, 4, 8)  # of a number, in bytes
_WIDTH_BYTES = frozenset(bytes((width,)) for width in _WIDTHS)
_FLOAT = "<f4"
_LATEST = 1 << 62  # seconds
_ASSISTANT, _ONE_PART, _SESSION, _TOPIC = 1, 2, 4, 8


class Segment(msgspec.Struct, frozen=True):
    """A segment: the entries from position `start` up to `stop`, and their part of the index, compressed."""

    version: int
    start: int
    stop: int
    data: bytes
    terms: int = 0
    """The number of terms of all parts of the index up to `stop`, counting repeated ones."""


class _Columns(msgspec.Struct, array_like=True):
    """The data of a segment. Numbers have as few bytes as the highest of their column needs."""

    terms: bytes
    """The terms that are new in this segment, one per line."""
    words: bytes
    """The words that are new in this segment, one per line."""
    word_terms: bytes
    """For each of them, the number of its term."""
    names: bytes
    """The names of participants that are new in this segment, one per line."""
    positions: bytes
    """For each unit, its position after the first entry of the segment."""
    first_time: int
    times: bytes
    """For each unit, the number of seconds after `first_time`."""
    flags: bytes
    speakers: bytes
    """For each unit, the number of its name, from 1; 0 if it has none."""
    lengths: bytes
    part_counts: bytes
    """For each unit, the number of its parts."""
    part_stops: bytes
    traits: bytes
    sizes: bytes
    """For each part, the number of its terms."""
    part_words: bytes
    labels: bytes
    """For each unit, the number of its labels."""
    label_words: bytes
    meaning: _Meaning | None = None
    """What is only needed for recall by meaning, if the index had it."""


class _Meaning(msgspec.Struct, array_like=True):
    """What was computed from the embeddings of words."""

    model: str
    """The name of the embeddings."""
    norms: bytes
    """For each part, the length of the vector of its words."""
    pieces: bytes
    """The pieces of the words that are new in this segment."""
    piece_counts: bytes
    """For each of these words, the number of its pieces."""
    word_lengths: bytes
    """For each of these words, the length of its vector."""


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
    first_time = int(index.times.values[units].min()) if low.units < high.units else 0
    meaning = None
    if index.vectors is not None:
        pieces, piece_counts = index.vectors.get_pieces(low.words, high.words)
        word_lengths = index.vectors.lengths[low.words : high.words]
        norms = index.norms.values[parts]
        packed = _pack_floats(norms), _pack(pieces), _pack(piece_counts), _pack_floats(word_lengths)
        meaning = _Meaning(index.vectors.model, *packed)
    columns = _Columns(
        terms=_pack_texts(index.vocabulary.terms[low.terms : high.terms]),
        words=_pack_texts(index.words.terms[low.words : high.words]),
        word_terms=_pack(index.word_terms.values[low.words : high.words]),
        names=_pack_texts(index.names[low.names : high.names]),
        positions=_pack(index.positions.values[units] - start),
        first_time=first_time,
        times=_pack(index.times.values[units] - first_time),
        flags=_pack(flags),
        speakers=_pack(index.speakers.values[units] + 1),
        lengths=_pack(index.lengths.values[units]),
        part_counts=_pack(np.diff(index.first_parts.values[units], append=high.parts)),
        part_stops=_pack(index.part_stops.values[parts]),
        traits=_pack(index.traits.values[parts]),
        sizes=_pack(index.postings.get_sizes()[parts]),
        part_words=_pack(index.part_words.values[low.part_words : high.part_words]),
        labels=_pack(np.bincount(index.label_units.values[labels] - low.units, minlength=high.units - low.units)),
        label_words=_pack(index.label_words.values[labels]),
        meaning=meaning,
    )
    data = zlib.compress(msgspec.msgpack.encode(columns))
    return json_bytes.encode(Segment(VERSION, start, stop, data, high.part_words))


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
    found: list[tuple[Segment, _Columns]] = []
    for segment in segments:
        try:
            found.append((segment, _unpack_segment(segment)))
        except (ValueError, zlib.error):
            break
    try:
        _append(index, found)
    except (ValueError, IndexError):
        pass
    else:
        return len(found)
    # At least one does not fit: those before it are added one by one.
    for count, each in enumerate(found):
        try:
            _append(index, [each])
        except (ValueError, IndexError):
            return count
    return len(found)


def _unpack_segment(segment: Segment) -> _Columns:
    """Return the columns of a segment. Raise `ValueError` or `zlib.error` if they can't be read."""
    inflater = zlib.decompressobj()
    unpacked = inflater.decompress(segment.data, _MAX_BYTES)
    if not inflater.eof:
        raise ValueError("the data of the segment is too long or ends too early")
    columns = msgspec.msgpack.decode(unpacked, type=_Columns)
    if abs(columns.first_time) > _LATEST:
        raise ValueError("the segment has times that no clock shows")
    return columns


def _append(index: RecallIndex, segments: Sequence[tuple[Segment, _Columns]]) -> None:
    """Add the units of unpacked segments. Raise `ValueError` if they do not fit; then the index is unchanged."""
    if not segments:
        return
    texts = {name: [_unpack_texts(getattr(each, name)) for _, each in segments] for name in _TEXTS}
    counts = [_count(each.positions) for _, each in segments]
    terms, words, names = ([text for each in texts[name] for text in each] for name in _TEXTS)
    columns: dict[str, Any] = {
        name: _unpack([getattr(each, name) for _, each in segments], dtype) for name, dtype in _DTYPES.items()
    }
    columns["speakers"] -= 1
    columns["times"] += np.repeat([each.first_time for _, each in segments], counts)
    starts, stops = (np.repeat([getattr(each, name) for each, _ in segments], counts) for name in ("start", "stop"))
    positions = columns["positions"] = columns["positions"] + starts
    flags, labels = columns.pop("flags"), columns["labels"]
    part_counts, part_stops, sizes = columns["part_counts"], columns["part_stops"], columns["sizes"]
    word_terms, part_words = columns.pop("word_terms"), columns["part_words"]
    label_words = columns["label_words"]
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
        and len(part_units) == len(part_stops) == len(sizes) == len(columns["traits"])
        and min(int(each.min(initial=0)) for each in (sizes, labels, columns["lengths"])) >= 0
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
        and bool((np.diff(positions) > 0).all() and (positions >= starts).all() and (positions < stops).all())
    )
    if not fits:
        raise ValueError("the columns of the segment do not fit together")
    part_starts = np.append(0, part_stops[:-1])[: len(part_stops)]
    part_starts[np.flatnonzero(np.diff(part_units, prepend=-1))] = 0
    if (part_starts > part_stops).any():
        raise ValueError("the parts of the segment overlap")
    runs = _read_meanings(index, [each for _, each in segments], texts["words"])
    index.append_terms(terms, words, word_terms)
    if index.vectors is not None:
        for run in runs:
            if run.pieces is None:
                index.vectors.extend(run.words)
            else:
                index.vectors.extend_pieces(*run.pieces)
    index.names += names
    index.append_columns(
        **columns,
        norms=np.concatenate([run.norms for run in runs]),
        is_assistant=(flags & _ASSISTANT) > 0,
        has_one_part=(flags & _ONE_PART) > 0,
        sessions=np.cumsum((flags & _SESSION) > 0),
        topics=np.cumsum((flags & _TOPIC) > 0),
        part_starts=part_starts,
    )


class _Run(NamedTuple):
    """What consecutive segments have for recall by meaning."""

    norms: Array
    words: list[str]
    pieces: tuple[Array, Array, Array] | None
    """The pieces of the words, their number for each word, and the lengths of the words; None if they are unknown."""


def _read_meanings(index: RecallIndex, segments: Sequence[_Columns], words: Sequence[list[str]]) -> list[_Run]:
    """Return what segments have for recall by meaning. Raise `ValueError` if it does not fit their parts and `words`.

    It is unknown if they were stored without it or with other embeddings, and not read if the index has no vectors.
    """

    def is_known(i: int) -> bool:
        meaning = segments[i].meaning
        return index.vectors is not None and meaning is not None and meaning.model == index.vectors.model

    runs = []
    for known, numbers in groupby(range(len(segments)), is_known):
        run = list(numbers)
        parts, run_words = sum(_count(segments[i].part_stops) for i in run), [word for i in run for word in words[i]]
        if not known or index.vectors is None:
            runs.append(_Run(np.full(parts, UNKNOWN), run_words, None))
            continue
        meanings = [meaning for i in run if (meaning := segments[i].meaning)]
        norms, lengths = (
            np.frombuffer(b"".join(getattr(each, name) for each in meanings), _FLOAT)
            for name in ("norms", "word_lengths")
        )
        pieces, counts = (
            _unpack([getattr(each, name) for each in meanings], np.int32) for name in ("pieces", "piece_counts")
        )
        fits = (
            len(norms) == parts
            and len(lengths) == len(counts) == len(run_words)
            and len(pieces) == counts.sum()
            and int(counts.min(initial=0)) >= 0
            and _is_within(pieces, 0, index.vectors.piece_count)
            and bool(((norms == UNKNOWN) | (norms >= 0)).all() and np.isfinite(norms).all())
            and bool((lengths >= 0).all() and np.isfinite(lengths).all())
        )
        if not fits:
            raise ValueError("the vectors of the segment do not fit its words and parts")
        runs.append(_Run(norms, run_words, (pieces, counts, lengths)))
    return runs


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


def _pack(values: Array) -> bytes:
    """Return numbers from 0 as bytes: the width of each number, then the numbers."""
    highest = int(values.max(initial=0))
    width = next(width for width in _WIDTHS if highest < 1 << 8 * width)
    return bytes((width,)) + values.astype(f"<u{width}").tobytes()


def _count(data: bytes) -> int:
    """Return how many numbers `_pack` has put into bytes. Raise `ValueError` if it can't have made them."""
    if data[:1] not in _WIDTH_BYTES or (len(data) - 1) % data[0]:
        raise ValueError("a column of the segment ends in the middle of a number")
    return (len(data) - 1) // data[0]


def _unpack(columns: Sequence[bytes], dtype: DTypeLike) -> Array:
    """Return all numbers of columns that `_pack` made."""
    found: list[Array] = []
    for width, run in groupby([column for column in columns if len(column) > 1], itemgetter(0)):
        numbers = [column[1:] for column in run]
        if width not in _WIDTHS or any(len(each) % width for each in numbers):
            raise ValueError("a column of the segment ends in the middle of a number")
        found.append(np.frombuffer(b"".join(numbers), f"<u{width}").astype(dtype))
    return np.concatenate(found) if found else np.empty(0, dtype)


def _pack_floats(values: Array) -> bytes:
    return values.astype(_FLOAT).tobytes()


def _pack_texts(texts: list[str]) -> bytes:
    return "\n".join(texts).encode("utf-8", "surrogatepass")


def _unpack_texts(data: bytes) -> list[str]:
    return data.decode("utf-8", "surrogatepass").split("\n") if data else []

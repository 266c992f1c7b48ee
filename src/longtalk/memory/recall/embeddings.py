"""Similarity by meaning, from static embeddings in an installed package: no network access, no model call.

This needs the extra `[recall]`, which installs WordLlama. WordLlama has a vector of 256 numbers for each of 32,000 word
pieces; the vector of a text is the mean of the vectors of its pieces, so it has the direction of their sum. Loading
them takes half a second, on first use in a process.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from longtalk.errors import MissingExtra
from longtalk.memory.recall.columns import Array, Column

__all__ = ["Vectors", "measure_lengths", "sum_groups"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_CHARS = 4_000  # of a query; the rest is ignored


class Vectors:
    """The embedding vectors of words, in the order in which the words were added."""

    def __init__(self) -> None:
        self._model = load_model()
        self._rows: Array = np.empty((0, self._model.embedding.shape[1]), self._model.embedding.dtype)
        self._lengths = Column(np.float32)
        self._count = 0
        self._pending: list[str] = []

    def extend(self, words: list[str]) -> None:
        """Add words. Their vectors are computed when they are first needed."""
        self._pending += words

    def truncate(self, count: int) -> None:
        """Keep only the first `count` words."""
        del self._pending[max(0, count - self._count) :]
        self._count = min(self._count, count)
        self._lengths.truncate(count)

    @property
    def nbytes(self) -> int:
        """The number of bytes of memory that the vectors use."""
        return self._rows.nbytes + self._lengths.nbytes

    @property
    def sums(self) -> Array:
        """A row for each word: the sum of the vectors of its pieces.

        So the vector of a text has the direction of the sum of these rows for its words. This is a view, valid until
        a word is added or removed.
        """
        if self._pending:
            self._reserve(self._count + len(self._pending))
            new = self._add_up_pieces(self._pending)
            self._rows[self._count : self._count + len(new)] = new
            self._lengths.extend(measure_lengths(new))
            self._count += len(new)
            self._pending = []
        return self._rows[: self._count]

    @property
    def lengths(self) -> Array:
        """The length of each of the `sums`."""
        count = len(self.sums)
        return self._lengths.values[:count]

    def embed(self, texts: list[str]) -> Array:
        """Return the vectors of texts, scaled to length 1. The vector of an empty text is all zeros."""
        vectors = self._add_up_pieces([text[:_MAX_CHARS] for text in texts])
        vectors /= measure_lengths(vectors)[:, None].clip(min=1e-9)
        return vectors

    def _add_up_pieces(self, texts: list[str]) -> Array:
        """Return, for each text, the sum of the vectors of its pieces."""
        cleaned = [_SURROGATE.sub("\ufffd", text) for text in texts]
        pieces = [each.ids for each in self._model.tokenizer.encode_batch_fast(cleaned, add_special_tokens=False)]
        flat = np.fromiter(chain.from_iterable(pieces), np.int64)
        return sum_groups(self._model.embedding[flat], np.array([len(each) for each in pieces], np.int64))

    def _reserve(self, needed: int) -> None:
        """Make room for rows. The capacity at least doubles, so adding a word has constant amortized cost."""
        if needed > len(self._rows):
            grown = np.empty((max(needed, 2 * len(self._rows)), self._rows.shape[1]), self._rows.dtype)
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown


def sum_groups(values: Array, sizes: Array) -> Array:
    """Return the sums of consecutive groups of values or rows with these sizes, which may be 0."""
    sums: Array = np.zeros((len(sizes), *values.shape[1:]), values.dtype)
    filled = np.flatnonzero(sizes)
    if len(filled):
        sums[filled] = np.add.reduceat(values, (np.cumsum(sizes) - sizes)[filled], axis=0)
    return sums


def measure_lengths(vectors: Array) -> Array:
    """Return the length of each vector."""
    lengths: Array = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return lengths


@lru_cache(maxsize=1)
def load_model() -> Any:
    """Return the WordLlama model from the installed package. Raises `InputError` if the package is not installed."""
    # WordLlama calls `logging.basicConfig` when it is imported, which does nothing if the root logger has a handler.
    placeholder = logging.NullHandler()
    logging.root.addHandler(placeholder)
    try:
        import wordllama
    except ImportError:
        raise MissingExtra("Recall(meaning=True) needs an extra: pip install 'longtalk[recall]'.") from None
    finally:
        logging.root.removeHandler(placeholder)
    folder = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    model.tokenizer.no_padding()
    return model

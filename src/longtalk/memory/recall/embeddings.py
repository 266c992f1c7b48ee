"""Similarity by meaning, from static embeddings in an installed package: no network access, no model call.

This needs the extra `[recall]`, which installs WordLlama. WordLlama has a vector of 256 numbers for each of 32,000 word
pieces; the vector of a text is the mean of the vectors of its pieces. Loading them takes half a second, on first use in
a process.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from longtalk.errors import MissingExtra

__all__ = ["Vectors"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_CHARS = 4_000  # of a text; the rest is ignored
_MAX_SIMILAR = 12  # texts that `find_similar` returns for each given text
_DECIMALS = 4  # to which similarities are rounded; further ones vary with the number of texts that are compared at once


class Vectors:
    """The embedding vectors of texts, in the order in which the texts were added."""

    def __init__(self) -> None:
        self._model = load_model()
        self._rows: Any = None
        self._count = 0
        self._pending: list[str] = []

    def add(self, text: str) -> None:
        """Add a text. Its vector is computed when it is first needed."""
        self._pending.append(clean_text(text))

    def truncate(self, count: int) -> None:
        """Keep only the first `count` texts."""
        del self._pending[max(0, count - self._count) :]
        self._count = min(self._count, count)

    @property
    def nbytes(self) -> int:
        """The number of bytes of memory that the vectors use."""
        return 0 if self._rows is None else int(self._rows.nbytes)

    def find_nearest(self, text: str, most: int) -> list[tuple[int, float]]:
        """Return the indexes of the `most` added texts nearest to this one, nearest first, except those below average.

        Each index comes with the nearness of its text, on a scale from 0 (the average) to 1 (the nearest text).
        """
        for similarities in self._compare_all([text]):
            mean, nearest = float(similarities.mean()), float(similarities.max())
            return [
                (i, (value - mean) / (nearest - mean)) for i, value in pick_highest(similarities, most) if value > mean
            ]
        return []

    def find_similar(self, texts: list[str], least: float) -> list[list[tuple[int, float]]]:
        """Return, for each given text, the indexes and similarities of the most similar added texts, best first.

        At most `_MAX_SIMILAR` are returned for each, and only those with a similarity of at least `least` (0 to 1).
        """
        compared = self._compare_all(texts) if texts else ()
        best = [pick_highest(similarities, _MAX_SIMILAR) for similarities in compared]
        return [[match for match in matches if match[1] >= least] for matches in best] or [[] for _ in texts]

    def _compare_all(self, texts: list[str]) -> Any:
        """Return a row for each given text with its similarity to each added text; empty if no text was added.

        A single matrix product for all given texts reads the stored vectors only once.
        """
        self._embed_pending()
        if not self._count:
            return ()
        vectors = self._compute_vectors([clean_text(text) for text in texts])
        return (vectors @ self._rows[: self._count].T).round(_DECIMALS)

    def _compute_vectors(self, texts: list[str]) -> Any:
        """Return the vectors of texts, scaled to length 1. The vector of an empty text is all zeros."""
        vectors = self._model.embed(texts, norm=False)
        lengths = (vectors * vectors).sum(axis=1, keepdims=True) ** 0.5
        return vectors / lengths.clip(min=1e-9)

    def _embed_pending(self) -> None:
        """Compute the vectors of the texts added since the last call.

        The capacity at least doubles when it grows, so adding a text has constant amortized cost.
        """
        if not self._pending:
            return
        new = self._compute_vectors(self._pending)
        self._pending = []
        needed = self._count + len(new)
        if self._rows is None:
            self._rows = new
        elif needed > len(self._rows):
            grown = type(new)((max(needed, 2 * len(self._rows)), new.shape[1]), dtype=new.dtype)
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        self._rows[self._count : needed] = new
        self._count = needed


def pick_highest(values: Any, most: int) -> list[tuple[int, float]]:
    """Return the highest values, at most `most` of them, each with its index, highest first."""
    import numpy as np

    highest = np.arange(len(values))
    if len(values) > most:
        # Only values that may be among the highest are sorted.
        highest = np.flatnonzero(values >= np.partition(values, len(values) - most)[len(values) - most])
    order = highest[(-values[highest]).argsort(kind="stable")[:most]]
    return [(int(i), float(values[i])) for i in order]


def clean_text(text: str) -> str:
    """Return a text in a form that any tokenizer accepts: without lone surrogates, and cut to a maximum length."""
    return _SURROGATE.sub("\ufffd", text[:_MAX_CHARS])


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
    return wordllama.WordLlama.load(cache_dir=folder, disable_download=True)

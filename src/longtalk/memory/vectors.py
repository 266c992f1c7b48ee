"""Texts by meaning: static embeddings that come with a package, without a network and without a model call.

Needs the extra `[recall]` (WordLlama: 256 numbers for each of 32,000 pieces of words; a text is their mean). Loaded
when it is first used, half a second once in a process.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from longtalk.errors import InputError

__all__ = ["Vectors"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_LENGTH = 4_000  # characters of a text that count
_CLOSE = 12  # texts that count as close
_EXACT = 4  # decimals that don't depend on how many texts are compared at once


class Vectors:
    """Texts in the order they were added, comparable with another one."""

    def __init__(self) -> None:
        self._model = model()
        self._rows: Any = None
        self._count = 0
        self._waiting: list[str] = []

    def add(self, text: str) -> None:
        """Take in the next text."""
        self._waiting.append(plain(text))

    def near(self, text: str, most: int) -> list[tuple[int, float]]:
        """The nearest of the texts, with how near: 1 is the nearest of all, 0 no nearer than usual."""
        for found in self._compare([text]):
            usual, nearest = float(found.mean()), float(found.max())
            return [(place, (value - usual) / (nearest - usual)) for place, value in best(found, most) if value > usual]
        return []

    def close(self, texts: list[str], least: float) -> list[list[tuple[int, float]]]:
        """For each, the few texts whose nearness, from 0 to 1, is at least so much, nearest first."""
        compared = self._compare(texts) if texts else ()
        return [[one for one in best(found, _CLOSE) if one[1] >= least] for found in compared] or [[] for _ in texts]

    def _compare(self, texts: list[str]) -> Any:
        """For each, how near each of the texts is. All in one go, since the rows are read once then."""
        self._embed()
        if not self._count:
            return ()
        return (self._vectors([plain(text) for text in texts]) @ self._rows[: self._count].T).round(_EXACT)

    def _vectors(self, texts: list[str]) -> Any:
        """Of length one each; of a text that is nothing, zero."""
        found = self._model.embed(texts, norm=False)
        lengths = (found * found).sum(axis=1, keepdims=True) ** 0.5
        return found / lengths.clip(min=1e-9)

    def _embed(self) -> None:
        """Make rows of the texts that wait. The room doubles, so that a text costs the same however many there are."""
        if not self._waiting:
            return
        new = self._vectors(self._waiting)
        self._waiting = []
        needed = self._count + len(new)
        if self._rows is None:
            self._rows = new
        elif needed > len(self._rows):
            grown = type(new)((max(needed, 2 * len(self._rows)), new.shape[1]), dtype=new.dtype)
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        self._rows[self._count : needed] = new
        self._count = needed


def best(found: Any, most: int) -> list[tuple[int, float]]:
    """The highest numbers, with their places."""
    return [(int(place), float(found[place])) for place in (-found).argsort(kind="stable")[:most]]


def plain(text: str) -> str:
    """A text that any tokenizer takes."""
    return _SURROGATE.sub("\ufffd", text[:_LENGTH])


@lru_cache(maxsize=1)
def model() -> Any:
    """The embeddings, from the package's own files."""
    try:
        import wordllama
    except ImportError:
        raise InputError('Recall by meaning needs the extra: pip install "longtalk[recall]".') from None
    folder = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=folder, disable_download=True)

"""Counters: objects that count how many tokens a text has.

An `Estimator` needs no vocabulary. It estimates the number of tokens in a tokenizer family from the words, digits,
punctuation and scripts of a text. It is off by a few percent and takes about ten microseconds for a typical message.
`Exact` is a real tokenizer from the extra `[tokens]`. A caller can supply any other object with a `count` method;
`CheckedCounter` makes it safe to use.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from longtalk.errors import InputError, MissingExtra
from longtalk.observation import log_suppressed
from longtalk.tokens.families import DEFAULT_FAMILIES, EXACT, FAMILIES, MODEL_PATTERNS, get_weights
from longtalk.tokens.features import BLOCK_CHARS, estimate, split_blocks


class Counter(Protocol):
    """An object that counts the tokens of a text. It may be called from several threads at once."""

    def count(self, text: str) -> int: ...


class Estimator(msgspec.Struct, frozen=True):
    """A counter that estimates tokens from character classes, for one of the tokenizer families in `FAMILIES`."""

    family: str = "o200k"

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise InputError(f"Unknown tokenizer family {self.family!r}; choose one of {', '.join(FAMILIES)}.")

    def count(self, text: str) -> int:
        """Return the estimated number of tokens in a text: 0 for an empty text, else at least 1."""
        costs = get_weights(self.family)
        tokens = 0.0
        for block in split_blocks(text) if len(text) > BLOCK_CHARS else (text,):
            tokens += estimate(block, costs) if block else 0
        return round(tokens) or int(bool(text))


class Exact:
    """A counter with a real tokenizer, for one of the families in `EXACT`. Requires the extra `[tokens]`."""

    __slots__ = ("_encode", "family")

    def __init__(self, family: str = "o200k") -> None:
        if family not in EXACT:
            remedy = f"use Estimator({family!r})" if family in FAMILIES else "see counter_for(model).family"
            raise InputError(f"No exact tokenizer for {family!r}, only for {', '.join(EXACT)}; {remedy}.")
        self.family = family
        self._encode = _load_tokenizer(EXACT[family]).encode_ordinary

    def count(self, text: str) -> int:
        """Return the exact number of tokens in a text."""
        try:
            return len(self._encode(text))
        except UnicodeEncodeError:
            return len(self._encode(text.encode("utf-8", "replace").decode()))

    def __repr__(self) -> str:
        return f"Exact({self.family!r})"


@lru_cache
def _load_tokenizer(name: str) -> Any:
    try:
        from splintr import Tokenizer
    except ImportError:
        raise MissingExtra("Exact counts require the extra [tokens]: pip install 'longtalk[tokens]'.") from None
    return Tokenizer.from_pretrained(name)


class CheckedCounter:
    """A counter supplied by the caller, checked with a test sentence when it is wrapped.

    If the counter fails later, the number of tokens is estimated as a quarter of the number of characters, so that a
    faulty counter never makes a turn fail.
    """

    __slots__ = ("_counter", "family")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self.family = getattr(counter, "family", "")
        result = counter.count("Does it count?")
        if not _to_tokens(result):
            raise InputError(
                f"{counter!r} counted {result!r} tokens in a test sentence; count() must return a positive number."
            )

    def count(self, text: str) -> int:
        """Return the number of tokens in a text, rounded to an integer."""
        try:
            tokens = _to_tokens(self._counter.count(text))
        except Exception as problem:
            log_suppressed("counter failed", problem, level=logging.DEBUG)
            tokens = None
        return len(text) // 4 + bool(text) if tokens is None else tokens


def _to_tokens(result: Any) -> int | None:
    """Return the result of a counter, rounded to an integer, or None if it is not a plausible number of tokens."""
    try:
        tokens: int = round(result)
    except (TypeError, ValueError, OverflowError):
        return None
    return tokens if 0 <= tokens < 2**40 else None


def counter_for(model: str) -> Estimator:
    """Return the estimator for the model with this label, such as `openai-chat:gpt-5.6` or `local`."""
    provider, _, name = model.lower().partition(":")
    for pattern, family in MODEL_PATTERNS:
        if re.search(pattern, name or provider):
            return Estimator(family)
    return Estimator(DEFAULT_FAMILIES.get(provider, DEFAULT_FAMILIES[""]))

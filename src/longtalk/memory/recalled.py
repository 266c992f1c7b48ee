"""Stub while recall is being built."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from longtalk.memory.recall import Index
from longtalk.tokens import Counter
from longtalk.transcript import Transcript


class Recall(msgspec.Struct, frozen=True):
    """That what was said before and fits a message goes along with it."""

    budget: int = 1_000
    gate: bool = True
    meaning: bool = False


class Recalled(msgspec.Struct, frozen=True):
    text: str = ""
    places: tuple[int, ...] = ()
    tokens: int = 0


def in_transcript(transcript: Transcript, message: str, config: Recall) -> Index:  # noqa: ARG001
    return Index()


def recalled(
    index: Index, message: str, config: Recall, counter: Counter, *, now: int, exclude: Collection[int], budget: int
) -> Recalled:
    return Recalled()

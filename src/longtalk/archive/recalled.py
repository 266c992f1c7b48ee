"""Explain what was recalled in a past turn: the score of each entry, and the words by which it was found."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from longtalk.memory.recall.index import RecallIndex
from longtalk.memory.recall.reranking import rank
from longtalk.memory.terms import extract_terms, extract_terms_with_words


class RecalledEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that was recalled for a message."""

    position: int
    score: float
    """How well it fits the message. Only the scores of one message can be compared; 0 if no word leads to it now."""
    words: tuple[str, ...]
    """The words of the message that the entry has too, in any form; empty if only its neighbours match."""


def explain_recalled(index: RecallIndex, message: str, positions: Collection[int], *, now: int) -> list[RecalledEntry]:
    """Return the entries at these positions with their scores, best first. `now` is the time of the message in ms."""
    scores: dict[int, float] = {}
    for hit in rank(index, message, now=now // 1000).hits:
        scores.setdefault(hit.position, hit.score)
    texts = {unit.position: unit.text for unit in index.find_units(positions)}
    asked = dict(extract_terms_with_words(message))
    found = []
    for position in positions:
        terms = set(extract_terms(texts.get(position, "")))
        words = tuple(word for term, word in asked.items() if term in terms)
        found.append(RecalledEntry(position=position, score=scores.get(position, 0.0), words=words))
    return sorted(found, key=lambda each: (-each.score, each.position))

"""The weights of the ranking, which `ranking.py` uses."""

from __future__ import annotations

import msgspec

__all__ = ["Weights"]


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The weights of the ranking. The defaults suit chats with assistants and conversations between people."""

    assistant: float = 0.3
    """Weight of an assistant's words, relative to a user's."""
    part: int = 300
    """Approximate number of characters in each part of an assistant's message."""
    saturation: float = 1.2
    """BM25's k1: the lower, the sooner further occurrences of a term stop adding to the score."""
    length: float = 0.5
    """BM25's b: how much long texts are penalized."""
    borrow: tuple[tuple[int, float], ...] = ((-1, 0.7), (-2, 0.5), (1, 0.5), (2, 0.3))
    """Pairs of an offset and a factor: a unit borrows the score of the neighbour at this offset, times this factor."""
    assistant_lends: float = 0.3
    """Factor for scores that are borrowed from an assistant's message."""
    long_text: int = 320
    """Length in characters above which a unit borrows less."""
    speaker: float = 2.5
    """Factor for messages of a participant whom the query names."""
    pair: float = 0.3
    """Weight of a pair of adjacent words that is also in the query, relative to the two words on their own."""
    feedback: float = 0.1
    """Weight of a word that the best matches have in common but the query lacks."""
    misspelled: float = 0.5
    """Weight of a known word that is spelled similarly to an unknown word of the query."""
    topic: float = 0.05
    """Share of the best scores in a topic that is added to each matching unit of the topic."""
    session: float = 0.2
    """Share of the best scores in a session that is added to each matching unit of the session."""
    day: float = 0.5
    """Bonus for units of a day that the query names, relative to the best score; half of it for a longer period."""
    time: float = 1.3
    """Factor for texts that mention a time, if the query asks for a time."""
    standing: float = 1.5
    """Factor for texts that state a user's standing wish, if the conversation has an assistant."""
    base_length: int = 200
    """Number of characters added to the length of a text before `brevity` is applied."""
    brevity: float = 0.4
    """A score is divided by the length of the text to the power of this number, so that shorter texts rank higher."""
    related: float = 0.7
    """Weight of a word that is related in meaning to a word of the query. Used only with vectors."""
    min_similarity: float = 0.35
    """Minimum similarity for a word to count as related in meaning. Used only with vectors."""
    meaning: float = 0.5
    """Weight of the text nearest in meaning, if the best match by words has weight 1. Used only with vectors."""

"""The features of parts that say how near they are to a query in meaning, for the learned ranker of recall by meaning.

A part is compared with the query as a whole, by the mean of its words' vectors, and with each word of the query, by the
nearest of its words. The latter finds "Rome" for "cities", which the mean of a long part hides.
"""

from __future__ import annotations

import numpy as np

from longtalk.memory.recall.columns import Array
from longtalk.memory.recall.index import RecallIndex
from longtalk.memory.recall.meaning import Meaning
from longtalk.memory.recall.ranking import Ranking

__all__ = ["compute_meaning_features", "pick_neighbours"]

_LEAST_SPREAD = 1e-9
_LENT = 0.7  # of the similarity of the unit before
_FAR = (-3, -2, 2, 3)  # offsets of further neighbours


def compute_meaning_features(ranking: Ranking, meaning: Meaning, parts: Array) -> dict[str, Array]:
    """Return the features of these parts. `meaning` is that of the ranking."""
    index, similarities = ranking.index, meaning.similarities
    part_units, units = index.part_units.values, index.part_units.values[parts]
    mean, highest = float(similarities.mean()), float(similarities.max())
    standardized = (similarities - mean) / (float(similarities.std()) + _LEAST_SPREAD)
    by_unit = np.maximum.reduceat(standardized, index.first_parts.values)
    sessions = index.sessions.values[part_units]
    session_starts = np.searchsorted(sessions, np.arange(int(sessions[-1]) + 1))
    own_sessions = index.sessions.values[units]
    best_by_session = np.maximum.reduceat(standardized, session_starts)
    sums_by_session = np.add.reduceat(standardized, session_starts)
    sizes_by_session = np.diff(session_starts, append=len(sessions))
    nearest = _find_nearest_words(index, meaning, parts)
    before = _find_nearest_words(index, meaning, index.first_parts.values[(units - 1).clip(0)])
    before *= pick_neighbours(index, units, np.ones(len(index)), -1)[:, None]
    weights = np.array(ranking.term_weights) / sum(ranking.term_weights)
    return {
        "similarity": similarities[parts],
        "similarity_standardized": standardized[parts],
        "similarity_relative": (similarities[parts] - mean) / (highest - mean + _LEAST_SPREAD),
        "similarity_place": np.log1p(np.searchsorted(np.sort(-similarities), -similarities[parts])),
        "similarity_previous": pick_neighbours(index, units, by_unit, -1),
        "similarity_next": pick_neighbours(index, units, by_unit, 1),
        "similarity_around": pick_neighbours(index, units, by_unit, *_FAR),
        "similarity_session": best_by_session[own_sessions],
        "similarity_session_mean": (sums_by_session / sizes_by_session)[own_sessions],
        "nearest_words": nearest @ weights,
        "nearest_words_strict": nearest**3 @ weights,
        "nearest_words_lent": np.maximum(nearest, _LENT * before) @ weights,
        "nearest_words_mean": nearest.mean(axis=1),
        "nearest_word": nearest.max(axis=1),
    }


def _find_nearest_words(index: RecallIndex, meaning: Meaning, parts: Array) -> Array:
    """Return, for each of these parts, the similarity of its nearest word to each word of the query, from 0 to 1."""
    sizes = index.postings.get_sizes()[parts]
    shifts = index.postings.starts.values[parts] - (np.cumsum(sizes) - sizes)
    words = index.part_words.values[np.repeat(shifts, sizes) + np.arange(sizes.sum())]
    found: Array = np.zeros((len(parts), meaning.by_word.shape[1]))
    filled = np.flatnonzero(sizes)
    if len(filled):
        firsts = (np.cumsum(sizes) - sizes)[filled]
        found[filled] = np.maximum.reduceat(np.take(meaning.by_word, words, axis=0), firsts, axis=0).clip(0, 1)
    return found


def pick_neighbours(index: RecallIndex, units: Array, values: Array, *offsets: int) -> Array:
    """Return, for each of these units, the highest value of its neighbours at these offsets, in its session.

    `values` has the value of each unit of the index. A unit without such a neighbour gets 0.
    """
    sessions = index.sessions.values
    places = np.stack([units + offset for offset in offsets])
    inside = (places >= 0) & (places < len(index))
    places = places.clip(0, len(index) - 1)
    found: Array = np.where(inside & (sessions[places] == sessions[units]), values[places], 0.0).max(axis=0)
    return found

"""The features of parts by which the learned ranker scores them. `tools/ranker/train.py` learns their weights.

A feature that is the same for all parts of a query doesn't change their order, only their chances of being relevant.
"""

from __future__ import annotations

import numpy as np

from longtalk.memory.recall.columns import Array
from longtalk.memory.recall.meaning_features import compute_meaning_features, pick_neighbours
from longtalk.memory.recall.parts import STANDING, TIMED
from longtalk.memory.recall.ranking import Ranking

__all__ = ["compute_features"]

_BASE_CHARS = 20  # added to a length, so that short texts don't differ much
_LEAST = 1e-3  # of a score relative to the best one
_FAR = (-3, -2, 2, 3)  # offsets of further neighbours


def compute_features(ranking: Ranking, parts: Array, scores: Array) -> dict[str, Array]:
    """Return the features of these parts, which are sorted by their hand-set `scores`, best first.

    Scores by words are relative to the weight of the query.
    """
    index, units = ranking.index, ranking.index.part_units.values[parts]
    weight, count = ranking.query_weight or 1.0, len(parts)
    sessions, is_assistant = index.sessions.values, index.is_assistant.values[units]
    traits, speakers = index.traits.values[parts], index.speakers.values[units]
    words, feedback = ranking.words, ranking.feedback
    own, borrowed = words.own[parts] / weight, words.borrowed[units] / weight
    total = own + borrowed
    best = float(total.max(initial=0.0)) or 1.0
    matching = np.flatnonzero(words.matches)
    owners = index.part_units.values[matching]
    total_by_unit = ranking.find_best_by_unit(matching, words.own[matching] + words.borrowed[owners]) / weight

    def shift(values: Array, *offsets: int) -> Array:
        return pick_neighbours(index, units, values, *offsets)

    def repeat(value: float) -> Array:
        return np.full(count, float(value))

    is_named = np.isin(speakers, list(ranking.named)) if ranking.named else np.zeros(count, np.bool_)
    timed, standing = (traits & TIMED) > 0, (traits & STANDING) > 0
    about = ranking.query.about_assistant
    sizes = index.part_stops.values[parts] - index.part_starts.values[parts]
    first = np.searchsorted(sessions, sessions[units])
    after = np.searchsorted(sessions, sessions[units], "right")
    by_meaning = compute_meaning_features(ranking, ranking.meaning, parts) if ranking.meaning else {}
    return {
        "score": np.log(np.maximum(scores / (float(scores.max(initial=0.0)) or 1.0), _LEAST)),
        "rank": np.log1p(np.arange(count)),
        "own": own,
        "borrowed": borrowed,
        "relative": total / best,
        "place": np.log1p(np.argsort(np.argsort(-total, kind="stable"), kind="stable")),
        "pairs": ranking.pairs[parts] / weight,
        "feedback": feedback.own[parts] / weight,
        "feedback_borrowed": feedback.borrowed[units] / weight,
        "topic": ranking.topics[units] / weight,
        "session": ranking.sessions[units] / weight,
        "day": ranking.days[units] > 0,
        "covered": ranking.covered[parts] / weight,
        "terms": ranking.term_counts[parts] / max(1, len(ranking.term_weights)),
        "rarest": ranking.rarest[parts] / (float(ranking.rarest.max(initial=0.0)) or 1.0),
        "previous": shift(total_by_unit, -1),
        "next": shift(total_by_unit, 1),
        "around": shift(total_by_unit, *_FAR),
        "assistant": is_assistant & (not about),
        "assistant_asked": is_assistant & about,
        "named": is_named,
        "other": ~is_named & bool(ranking.named),
        "timed": timed,
        "timed_asked": timed & ranking.query.asks_when,
        "standing": standing,
        "size": np.log(_BASE_CHARS + sizes),
        "length": np.log(_BASE_CHARS + index.lengths.values[units]),
        "position": units / max(1, len(index)),
        "age": np.log1p(len(index) - units),
        "from_start": np.log1p(units - first),
        "to_end": np.log1p(after - 1 - units),
        "query_best": repeat(best),
        "query_terms": repeat(np.log1p(len(ranking.term_weights))),
        "query_rarity": repeat(weight / max(1, len(ranking.term_weights))),
        "query_when": repeat(ranking.query.asks_when),
        "query_day": repeat(bool(ranking.query.days)),
        "query_question": repeat(ranking.query.is_question),
        "units": repeat(np.log1p(len(index))),
        "chat": repeat(ranking.has_assistant),
        **by_meaning,
    }

"""The learned ranker: the chance of each of the best parts to be relevant, from its features.

It is a logistic regression. `tools/ranker/train.py` learns its weights from generated conversations and writes them to
`ranker.json`, and those for recall by meaning, which has more features, to `ranker_by_meaning.json`. The latter suit
only the word vectors that they were learned with. With others, the parts keep the order of the hand-set weights.
"""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from importlib.resources import files

import msgspec
import numpy as np

from longtalk.memory.recall.columns import Array, are_in
from longtalk.memory.recall.features import compute_features
from longtalk.memory.recall.index import Hit, RankedHits, RecallIndex
from longtalk.memory.recall.narrowing import narrow
from longtalk.memory.recall.ranking import Ranking

__all__ = ["BASE_CHARS", "MAX_RERANKED", "Model", "compute_chances", "load_model", "rank"]

MAX_RERANKED = 150
"""The maximum number of parts that are ranked again. All others come after them."""
BASE_CHARS = 40
"""The number of characters added to the length of a part, for its speaker and its date."""


class Model(msgspec.Struct, frozen=True, omit_defaults=True):
    """The weights of the ranker."""

    bias: float
    brevity: float
    """A chance is divided by the length of the part to the power of this number."""
    features: dict[str, tuple[float, float, float]]
    """For each feature, its lowest and highest value (others are moved to these) and its weight."""
    vectors: str = ""
    """The name of the word vectors that the weights were learned with; empty for recall by words."""


def compute_chances(model: Model, features: dict[str, Array]) -> Array:
    """Return the chance of each part to be relevant, from 0 to 1."""
    total = model.bias + sum(
        weight * features[name].clip(low, high) for name, (low, high, weight) in model.features.items()
    )
    chances: Array = 1 / (1 + np.exp(-total))
    return chances


def rank(index: RecallIndex, query: str, *, now: int = 0, exclude: Container[int] = ()) -> RankedHits:
    """Return the hits for a query, best first, without messages at the positions in `exclude`.

    `now` is the time of the query in seconds.
    """
    index = narrow(index, query, now)
    if index.postings.is_empty():
        return RankedHits((), 0.0)
    ranking = Ranking(index, query, now)
    parts, scores = ranking.compute_final_scores()
    positions = index.positions.values[index.part_units.values[parts]]
    allowed = np.flatnonzero(~are_in(positions, exclude))
    if not len(allowed):
        return RankedHits((), 0.0)
    order = allowed[np.lexsort((index.part_starts.values[parts[allowed]], positions[allowed], -scores[allowed]))]
    parts, scores, chances = parts[order], scores[order], np.zeros(len(order))
    model = load_model(by_meaning=ranking.meaning is not None)
    if model.vectors == (index.vectors.model if index.vectors and ranking.meaning else ""):
        parts, scores, chances = _rerank(ranking, parts, scores, model)
    positions = index.positions.values[index.part_units.values[parts]]
    starts, stops = index.part_starts.values[parts], index.part_stops.values[parts]
    columns = (each.tolist() for each in (positions, scores, starts, stops, chances))
    hits = tuple(map(Hit, *columns))
    return RankedHits(hits, ranking.estimate_need(exclude), ranking.query.is_question)


def _rerank(ranking: Ranking, parts: Array, scores: Array, model: Model) -> tuple[Array, Array, Array]:
    """Return the parts, best first, with new scores and their chances to be relevant.

    `parts` are sorted by `scores`, best first. Only the first ones are ranked again; the others have the chance 0.
    """
    top, rest = parts[:MAX_RERANKED], parts[MAX_RERANKED:]
    found = compute_chances(model, compute_features(ranking, top, scores[: len(top)]))
    sizes = ranking.index.part_stops.values[top] - ranking.index.part_starts.values[top]
    values = found / (BASE_CHARS + sizes) ** model.brevity
    order = np.argsort(-values, kind="stable")
    rest_scores = scores[len(top) :]
    if len(rest):
        rest_scores = rest_scores * (float(values.min()) / (float(scores[len(top) - 1]) or 1.0))
    chances = np.concatenate((found[order], np.zeros(len(rest))))
    return np.concatenate((top[order], rest)), np.concatenate((values[order], rest_scores)), chances


@lru_cache(maxsize=2)
def load_model(*, by_meaning: bool = False) -> Model:
    """Return the learned weights for recall by words or by meaning."""
    name = "ranker_by_meaning.json" if by_meaning else "ranker.json"
    return msgspec.json.decode(files(__package__).joinpath(name).read_bytes(), type=Model)

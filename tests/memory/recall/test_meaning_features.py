"""Test the features of parts by meaning, with conversations whose words are clearly near or far from a query."""

import numpy as np

from longtalk.memory.recall.features import compute_features
from longtalk.memory.recall.index import RecallIndex, Unit
from longtalk.memory.recall.ranking import Ranking

TALK = (
    ("The invoice is due on Friday.", 0),
    ("We spent some days in Rome.", 0),
    ("It was sunny.", 0),
    ("", 0),
    ("I repaired my bicycle.", 90 * 86_400),
)


def compute(query: str, names: tuple[str, ...]) -> list[list[float]]:
    """Return the features with these names of all parts of the conversation."""
    index = RecallIndex((Unit(i, "user", text, 10**9 + at) for i, (text, at) in enumerate(TALK)), meaning=True)
    features = compute_features(Ranking(index, query, 0), np.arange(len(TALK)), np.ones(len(TALK)))
    return [features[name].tolist() for name in names]


def test_the_part_with_the_word_nearest_to_one_of_the_query_has_the_highest_feature() -> None:
    nearest, strict, best = compute("Which cities?", ("nearest_words", "nearest_words_strict", "nearest_word"))
    assert [each.index(max(each)) for each in (nearest, strict, best)] == [1, 1, 1]
    assert all(0 <= value <= 1 for value in (*nearest, *strict, *best))
    assert nearest[3] == 0


def test_a_part_borrows_from_the_one_before_it_and_not_from_another_session() -> None:
    own, lent = compute("Which cities?", ("nearest_words", "nearest_words_lent"))
    assert lent[2] == max(own[2], 0.7 * own[1]) > own[2]
    assert lent[4] == own[4]


def test_similarities_of_neighbours_are_those_in_the_same_session() -> None:
    standardized, previous, following = compute(
        "Which cities?", ("similarity_standardized", "similarity_previous", "similarity_next")
    )
    assert previous == [0.0, *standardized[:3], 0.0]
    assert following == [*standardized[1:4], 0.0, 0.0]


def test_a_session_has_the_similarities_of_its_parts() -> None:
    own, best, mean = compute(
        "Which cities?", ("similarity_standardized", "similarity_session", "similarity_session_mean")
    )
    assert best == [max(own[:4])] * 4 + own[4:]
    np.testing.assert_allclose(mean, [np.mean(own[:4])] * 4 + own[4:])

import numpy as np
import pytest

from longtalk.memory.recall import reranking
from longtalk.memory.recall.features import compute_features
from longtalk.memory.recall.index import RecallIndex, Unit
from longtalk.memory.recall.ranking import Ranking
from longtalk.memory.recall.reranking import Model, compute_chances, rank

TALK = (
    "My sister plays the violin in a small orchestra.",
    "They rehearse in the old brewery near the harbour.",
    "The violin in the museum was built in Cremona.",
    "I had soup for lunch.",
    "The tram was late again, as always.",
    "My sister moved to Lisbon last year.",
)


def index_talk(*, meaning: bool = False) -> RecallIndex:
    return RecallIndex([Unit(i, "user", text) for i, text in enumerate(TALK)], meaning=meaning)


def test_the_chance_of_a_hit_grows_with_the_words_that_it_shares_with_the_query():
    hits = {hit.position: hit for hit in rank(index_talk(), "Which orchestra does my sister play the violin in?").hits}
    assert 1 > hits[0].chance > hits[2].chance > 0
    assert hits[0].chance > hits[5].chance


def test_hits_are_ordered_by_their_chances_relative_to_their_lengths():
    hits = rank(index_talk(), "my sister's violin in the orchestra").hits
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert len(hits) > 2


@pytest.mark.parametrize("meaning", [False, True])
def test_each_weight_belongs_to_a_feature_and_each_feature_has_a_weight(meaning: bool):
    index = index_talk(meaning=meaning)
    ranking = Ranking(index, "my sister's violin", 0)
    parts, scores = ranking.compute_final_scores()
    features = compute_features(ranking, parts, scores)
    model = reranking.load_model(by_meaning=meaning)
    assert list(model.features) == list(features)
    assert model.vectors == (index.vectors.model if index.vectors else "")
    assert all(np.isfinite(values).all() for values in features.values())


def test_a_feature_outside_the_range_of_its_training_counts_as_its_end():
    model = Model(0.0, 0.5, {"own": (0.0, 2.0, 1.0)})
    chances = compute_chances(model, {"own": np.array([-5.0, 0.0, 2.0, 90.0])})
    assert chances[0] == chances[1] == 0.5
    assert chances[2] == chances[3] == pytest.approx(1 / (1 + np.exp(-2.0)))


def test_only_the_best_parts_are_ranked_again_and_the_others_come_after_them(monkeypatch):
    query = "my sister's violin in the orchestra"
    ranking = Ranking(index_talk(), query, 0)
    parts, scores = ranking.compute_final_scores()
    last = parts[np.argsort(-scores, kind="stable")][2:].tolist()
    monkeypatch.setattr(reranking, "MAX_RERANKED", 2)
    hits = rank(index_talk(), query).hits
    assert [hit.position for hit in hits[2:]] == last
    assert [hit.chance > 0 for hit in hits] == [True, True, *[False] * len(last)]
    assert hits[1].score >= hits[2].score


def test_excluded_messages_do_not_count_among_the_best_parts(monkeypatch):
    monkeypatch.setattr(reranking, "MAX_RERANKED", 1)
    query = "my sister's violin in the orchestra"
    first = rank(index_talk(), query).hits[0].position
    assert rank(index_talk(), query, exclude={first}).hits[0].chance > 0


def test_weights_that_were_learned_with_other_vectors_are_not_used(monkeypatch):
    index = index_talk(meaning=True)
    assert all(hit.chance > 0 for hit in rank(index, "my sister's fiddle").hits)
    other = index.vectors._model._replace(name="others")
    monkeypatch.setattr(index.vectors, "_model", other)
    hits = rank(index, "my sister's fiddle").hits
    assert hits
    assert {hit.chance for hit in hits} == {0.0}

import numpy as np
import pytest

from longtalk.memory.recall.reranking import Model
from tools.ranker import train
from tools.ranker.talks import generate_talks


@pytest.fixture(scope="module")
def talks():
    return generate_talks(5, 2, 2)


def test_the_same_seed_generates_the_same_conversations(talks):
    assert generate_talks(5, 2, 2) == talks
    assert generate_talks(6, 2, 2) != talks


def test_every_question_has_evidence_and_no_phrase_is_left_unfilled(talks):
    for talk in talks:
        assert talk.questions
        texts = [unit.text for unit in talk.units] + [question for question, _ in talk.questions]
        assert not [text for text in texts if "{" in text or "[" in text]
        for _, evidence in talk.questions:
            assert evidence
            assert evidence <= set(range(len(talk.units)))


def test_a_chat_has_an_assistant_and_a_dialogue_has_two_names(talks):
    dialogue, chat = talks[0], talks[-1]
    assert len({unit.name for unit in dialogue.units}) == 2
    assert {unit.role for unit in chat.units} == {"user", "assistant"}


@pytest.mark.slow
def test_training_puts_more_evidence_within_a_small_budget(talks, monkeypatch):
    monkeypatch.setattr(train, "_STEPS", 60)
    names, found = train.list_examples(talks)
    examples = [each for one in found for each in one]
    model = train.calibrate(train.fit(examples, names, 0.1), examples, names)
    learned = train.measure(examples, lambda each: train.compute(model, each, names) / (40 + each.sizes) ** 0.5)
    assert learned[0] > train.measure(examples, lambda each: each.scores)[0]
    expected = sum(float(train.compute(model, each, names).sum()) for each in examples)
    assert expected == pytest.approx(sum(float(each.labels.sum()) for each in examples), rel=0.01)


@pytest.mark.slow
def test_the_higher_the_penalty_the_closer_a_model_is_to_the_hand_set_order(talks, monkeypatch):
    monkeypatch.setattr(train, "_STEPS", 60)
    names, found = train.list_examples(talks)
    examples = [each for one in found for each in one]

    def measure_likeness(penalty):
        score = train.make_score(train.fit(examples, names, penalty), names)
        return sum(float(np.corrcoef(np.log(score(each)), np.log(each.scores))[0, 1]) for each in examples)

    assert measure_likeness(0.1) < measure_likeness(1.0) < measure_likeness(100.0)


def test_of_models_that_find_about_as_much_the_one_closest_to_the_hand_set_weights_is_selected():
    talks = [[make_example(evidence)] for evidence in range(4)]
    finds, misses = (Model(0.0, 0.0, {"own": (-9.0, 9.0, weight)}) for weight in (5.0, -5.0))
    assert train.select(talks, [finds, misses], ["own"]).features == finds.features
    assert train.select(talks, [misses, finds], ["own"]).features == finds.features
    later = Model(0.0, 0.0, {"own": (-9.0, 9.0, 2.0)})
    assert train.select(talks, [finds, later, misses], ["own"]).features == later.features


def make_example(evidence):
    """Return an example of four long parts, of which one is evidence and has the highest feature."""
    labels = (np.arange(4) == evidence).astype(float)
    return train.Example(labels[:, None], labels, np.arange(4), np.full(4, 900), np.ones(4), 1)

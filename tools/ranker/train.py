"""Learn the weights of the ranker from generated conversations, and write them to two files.

`ranker.json` is for recall by words, and `ranker_by_meaning.json` for recall by meaning, which has more features and
needs the extra `[recall]`. `python -m tools.ranker.train` takes minutes. It writes conversations with a seed, ranks
their questions by the hand-set weights, computes the features of the best parts, and fits logistic regressions. A
quarter of the conversations is held out: chances are calibrated on them, and they show what is gained.

What is not fitted is selected on the held-out conversations too: how much the weights are penalized, and how much
length counts. The penalty spares the hand-set score, so the higher it is, the closer the model is to the hand-set
weights. Generated conversations are not real ones; so among the models that find about as much as the best one, within
one standard error, the closest to the hand-set weights is taken.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from longtalk.memory.recall.columns import Array
from longtalk.memory.recall.embeddings import Vectors
from longtalk.memory.recall.features import compute_features
from longtalk.memory.recall.index import RecallIndex
from longtalk.memory.recall.ranking import Ranking
from longtalk.memory.recall.reranking import BASE_CHARS, MAX_RERANKED, Model, compute_chances
from tools.ranker.talks import Talk, generate_talks

SEED, DIALOGUES, CHATS = 3, 70, 50
HELD_OUT = 4  # one conversation in so many
BUDGETS = (300, 1_000, 2_000, 4_000)
PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
BREVITIES = (0.0, 0.25, 0.5)
RESULTS = Path(__file__).parents[2] / "src/longtalk/memory/recall"
_MIN_PARTS = 6
_CLIP = 4  # standard deviations
_FITTED = 80  # best parts of each question that weights are fitted to
_SPARED = "score"  # the feature with the hand-set score
_LISTWISE = 0.5  # weight of the order within a question, relative to the chances
_STEPS, _RATE = 250, 0.08


class Example(msgspec.Struct):
    """The best parts of one question: their features, whether they are evidence, and what they cost."""

    features: Array
    labels: Array
    positions: Array
    sizes: Array
    scores: Array
    evidence: int


def list_examples(talks: Sequence[Talk], *, meaning: bool = False) -> tuple[list[str], list[list[Example]]]:
    """Return the names of the features, and the examples of each conversation."""
    names: list[str] = []
    found = []
    for talk in talks:
        index = RecallIndex(talk.units, meaning=meaning)
        found.append(
            [
                example
                for question, evidence in talk.questions
                if (example := make_example(index, question, evidence, names)) is not None
            ]
        )
    return names, found


def make_example(index: RecallIndex, question: str, evidence: frozenset[int], names: list[str]) -> Example | None:
    """Return the best parts for a question, or None if there are few."""
    ranking = Ranking(index, question, 0)
    parts, scores = ranking.compute_final_scores()
    order = np.argsort(-scores, kind="stable")[:MAX_RERANKED]
    parts, scores = parts[order], scores[order]
    if len(parts) < _MIN_PARTS:
        return None
    features = compute_features(ranking, parts, scores)
    names[:] = list(features)
    positions = index.positions.values[index.part_units.values[parts]]
    return Example(
        np.stack(list(features.values()), axis=1).astype(np.float64),
        np.isin(positions, list(evidence)).astype(float),
        positions,
        index.part_stops.values[parts] - index.part_starts.values[parts],
        scores,
        len(evidence),
    )


def split(found: Sequence[list[Example]]) -> tuple[list[Example], list[list[Example]]]:
    """Return the examples to fit weights to, and those of each conversation that is held out."""
    training = [each for i, examples in enumerate(found) if i % HELD_OUT for each in examples]
    return training, [examples for examples in found[::HELD_OUT] if examples]


def pick_features(examples: Sequence[Example], columns: Sequence[int]) -> list[Example]:
    """Return examples to fit weights to, with some of the features only."""
    return [msgspec.structs.replace(each, features=each.features[:_FITTED, columns]) for each in examples]


def fit(examples: Sequence[Example], names: Sequence[str], penalty: float) -> Model:
    """Return the weights that make evidence likely, and more likely than the other parts for the same question.

    `penalty` is the price of large weights, except that of the hand-set score.
    """
    values = np.concatenate([each.features[:_FITTED] for each in examples])
    labels = np.concatenate([each.labels[:_FITTED] for each in examples])
    sizes = np.array([len(each.labels[:_FITTED]) for each in examples])
    penalties = np.where(np.array(names) == _SPARED, 0.0, penalty)
    starts, questions = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(sizes)), sizes)
    mean, deviation = values.mean(axis=0), values.std(axis=0) + 1e-6
    scaled = ((values - mean) / deviation).clip(-_CLIP, _CLIP)
    evidence = np.add.reduceat(labels, starts)[questions]
    shares = labels / np.maximum(1, evidence)
    importance = np.where(labels > 0, 1 / np.clip(evidence, 1, 5), 1 / 3)
    weights, bias = np.zeros(scaled.shape[1]), -3.0
    first, second = np.zeros(len(weights) + 1), np.zeros(len(weights) + 1)
    for step in range(1, _STEPS + 1):
        total = scaled @ weights + bias
        gradient = (1 / (1 + np.exp(-total)) - labels) * importance
        powers = np.exp(total - np.maximum.reduceat(total, starts)[questions])
        powers /= np.add.reduceat(powers, starts)[questions]
        gradient += _LISTWISE * np.where(evidence > 0, powers - shares, 0.0)
        gradient /= len(sizes)
        slopes = np.append(scaled.T @ gradient + penalties * weights, gradient.sum())
        first, second = 0.9 * first + 0.1 * slopes, 0.99 * second + 0.01 * slopes**2
        rate = _RATE * (1 - step / _STEPS) + 0.001
        change = rate * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.99**step)) + 1e-9)
        weights, bias = weights - change[:-1], bias - change[-1]
    return make_model(names, weights, bias, mean, deviation)


def make_model(names: Sequence[str], weights: Array, bias: float, mean: Array, deviation: Array) -> Model:
    """Return the weights for features that are not scaled."""
    columns = (mean - _CLIP * deviation, mean + _CLIP * deviation, weights / deviation)
    rows = zip(names, *(each.tolist() for each in columns), strict=True)
    features = {
        name: (float(f"{low:.5g}"), float(f"{high:.5g}"), float(f"{weight:.5g}")) for name, low, high, weight in rows
    }
    return Model(round(float(bias - (weights * mean / deviation).sum()), 5), BREVITIES[0], features)


def select(talks: Sequence[Sequence[Example]], models: Sequence[Model], names: Sequence[str]) -> Model:
    """Return the last of these models, with one of `BREVITIES`, that finds about as much as the best of all.

    `talks` has the examples of each conversation. A model finds about as much if it lacks at most one standard error of
    the difference between the two.
    """
    made = [msgspec.structs.replace(model, brevity=brevity) for model in models for brevity in BREVITIES]
    found = np.array([[np.mean(measure(talk, make_score(each, names))) for talk in talks] for each in made])
    lost = found[int(np.argmax(found.mean(axis=1)))] - found
    errors = lost.std(axis=1) / len(talks) ** 0.5
    good = lost.mean(axis=1) <= errors
    group = max(i // len(BREVITIES) for i in np.flatnonzero(good).tolist()) * len(BREVITIES)
    means = np.where(good, found.mean(axis=1), 0.0)[group : group + len(BREVITIES)]
    return made[group + int(np.argmax(means))]


def make_score(model: Model, names: Sequence[str]) -> Callable[[Example], Array]:
    """Return a function that scores the parts of an example as the ranker does."""

    def score(each: Example) -> Array:
        found: Array = compute(model, each, names) / (BASE_CHARS + each.sizes) ** model.brevity
        return found

    return score


def calibrate(model: Model, examples: Sequence[Example], names: Sequence[str]) -> Model:
    """Return the model with its chances stretched and moved to fit the shares of evidence in these examples."""
    chances = np.concatenate([compute(model, each, names) for each in examples])
    labels = np.concatenate([each.labels for each in examples])
    odds = np.log(chances / (1 - chances))
    slope, shift = 1.0, 0.0
    for _ in range(30):  # Newton's method
        found = 1 / (1 + np.exp(-(slope * odds + shift)))
        spread = found * (1 - found)
        gradient = np.array([((found - labels) * odds).sum(), (found - labels).sum()])
        mixed = (spread * odds).sum()
        slope, shift = np.array([slope, shift]) - np.linalg.solve(
            np.array([[(spread * odds**2).sum(), mixed], [mixed, spread.sum()]]), gradient
        )
    features = {
        name: (low, high, float(f"{slope * weight:.5g}")) for name, (low, high, weight) in model.features.items()
    }
    return Model(round(float(slope * model.bias + shift), 5), model.brevity, features)


def compute(model: Model, example: Example, names: Sequence[str]) -> Array:
    """Return the chances of the parts of an example."""
    return compute_chances(model, dict(zip(names, example.features.T, strict=True)))


def measure(examples: Sequence[Example], score: Callable[[Example], Array]) -> list[float]:
    """Return the percentage of evidence within each budget, when parts are taken by their score as far as they fit."""
    found = np.zeros(len(BUDGETS))
    for example in examples:
        order = np.argsort(-score(example), kind="stable")
        costs = ((example.sizes[order] + 22) / 4).tolist()
        positions, labels = example.positions[order].tolist(), (example.labels[order] > 0).tolist()
        for i, budget in enumerate(BUDGETS):
            remaining, taken = float(budget), set()
            for cost, position, label in zip(costs, positions, labels, strict=True):
                if cost <= remaining:
                    remaining -= cost
                    if label:
                        taken.add(position)
            found[i] += len(taken) / example.evidence
    return [round(100 * float(each) / len(examples), 1) for each in found]


def learn(talks: Sequence[Talk], *, meaning: bool) -> Model:
    """Return the weights for recall by words or by meaning, and print what is gained on held-out conversations."""
    names, found = list_examples(talks, meaning=meaning)
    training, tested = split(found)
    held_out = [each for examples in tested for each in examples]
    models = {penalty: fit(training, names, penalty) for penalty in PENALTIES}
    chosen = select(tested, list(models.values()), names)
    penalty = next(penalty for penalty, each in models.items() if each.features == chosen.features)
    model = calibrate(chosen, held_out, names)
    print(f"By {'meaning' if meaning else 'words'}: {len(training)} questions, {len(held_out)} held out. ", end="")
    print(f"Selected: penalty {penalty:g}, brevity {model.brevity:g}. Recall in percent at {BUDGETS}:")
    print("hand-set", measure(held_out, lambda each: each.scores))
    print("learned ", measure(held_out, make_score(model, names)), flush=True)
    return msgspec.structs.replace(model, vectors=Vectors().model if meaning else "")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the ranker, print what is gained on held-out conversations, and write the weights."""
    parser = argparse.ArgumentParser(description="Learn the weights of the ranker.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the folder to write to")
    folder = parser.parse_args(arguments).output
    talks = generate_talks(SEED, DIALOGUES, CHATS)
    for name, meaning in (("ranker.json", False), ("ranker_by_meaning.json", True)):
        model = learn(talks, meaning=meaning)
        (folder / name).write_bytes(msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n")


if __name__ == "__main__":
    main()

"""What recall finds in a conversation if what is chosen or learned comes from the other conversations alone.

`python -m bench.recall --left-out PATH…` prints it beside recall as it is shipped. So it shows how much of the figures
comes from choices that were made with the help of these data sets, and what other choices could gain:

- *weights*: of the hand-set weights, the one whose change to a half or the double finds most in the other
  conversations is changed.
- *ranker*: the ranker's weights are learned from the other conversations instead of generated ones.
- *features*: the feature of the ranker, or all features of one kind, without which most is found in the other
  conversations is removed, if any, and the weights of the others are learned again from generated conversations. This
  takes minutes.
- *form*: the form of the score that finds most in the other conversations is taken: the order of the hand-set weights,
  or the chances of the ranker, divided by a power of the length.
- *gate*: the weights that estimate whether a message needs recall are fitted to the other conversations.
"""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol
from unittest import mock

import msgspec
import numpy as np

from longtalk.memory.recall import ranking, reranking
from longtalk.memory.recall.columns import Array
from longtalk.memory.recall.config import Recalled
from longtalk.memory.recall.gain import Evidence, choose_share
from longtalk.memory.recall.index import RankedHits, RecallIndex, Unit, Weights
from longtalk.memory.recall.reranking import Model, rank
from longtalk.memory.recall.search import render_ranked
from longtalk.tokens import Counter
from tools.ranker import train
from tools.ranker.talks import generate_talks

_FACTORS = (0.5, 2.0)
_GATED = 1_000  # tokens
_STRANGERS = 20  # questions about the conversation before
_PENALTY = 0.1  # as on generated conversations
_RIDGE = 0.01
_KINDS = (
    ("score", "rank"),
    ("own", "borrowed", "relative", "place"),
    ("feedback", "feedback_borrowed"),
    ("topic", "session"),
    ("day", "query_day"),
    ("covered", "terms", "rarest"),
    ("previous", "next", "around"),
    ("assistant", "assistant_asked", "chat"),
    ("named", "other"),
    ("timed", "timed_asked", "query_when"),
    ("size", "length"),
    ("position", "age", "from_start", "to_end", "units"),
    ("query_best", "query_terms", "query_rarity", "query_question"),
    ("similarity", "similarity_standardized", "similarity_relative", "similarity_place"),
    ("similarity_previous", "similarity_next", "similarity_around"),
    ("similarity_session", "similarity_session_mean"),
    ("nearest_words", "nearest_words_strict", "nearest_words_lent", "nearest_words_mean", "nearest_word"),
)
"""Features of the ranker that say the same kind of thing. The last ones are of recall by meaning only."""


class Talk(Protocol):
    """A conversation with its questions, and the positions that answer each."""

    @property
    def units(self) -> list[Unit]: ...
    @property
    def questions(self) -> list[tuple[str, frozenset[int]]]: ...


class LeftOut:
    """The conversations of all data sets, indexed for recall by words or by meaning."""

    def __init__(
        self,
        sets: dict[str, list[Talk]],
        budgets: Sequence[int],
        counter: Counter,
        share: Callable[[Sequence[Unit], Recalled, frozenset[int]], float],
        *,
        meaning: bool,
    ) -> None:
        self._names = [name for name, talks in sets.items() for _ in talks]
        self._talks = [talk for talks in sets.values() for talk in talks]
        self._before = [talks[number - 1] for talks in sets.values() for number in range(len(talks))]
        self._indexes = [RecallIndex(talk.units, meaning=meaning) for talk in self._talks]
        self._budgets, self._counter, self._share = budgets, counter, share

    def measure_all(self) -> Iterator[tuple[str, dict[str, list[float]]]]:
        """Yield what was chosen, and the percentages of each data set, by budget."""
        yield "as shipped", self._average([self._measure(i) for i in range(len(self._talks))])
        yield "weights", self._average(self._measure_weights())
        yield "ranker", self._average(self._measure_ranker())
        for title, list_models in (("features", list_without_features), ("form", list_forms)):
            rows, chosen = self._measure_models(list_models(self._shipped))
            yield title, self._average(rows)
            print(f"{'':12}chosen: " + ", ".join(f"{name} ({times})" for name, times in Tally(chosen).most_common()))

    def measure_gate(self) -> Iterator[tuple[str, dict[str, list[float]]]]:
        """Yield what was chosen, and for each data set the points lost and the share of the budget for strangers."""
        seen = [self._observe(i) for i in range(len(self._talks))]
        yield "as shipped", self._average_gate(seen, [np.array([each.need for each in found]) for found in seen])
        fitted = []
        for i, found in enumerate(seen):
            others = [each for j, other in enumerate(seen) if j != i and self._is_other(i, j) for each in other]
            fitted.append(fit_gate(others)(found))
        yield "gate", self._average_gate(seen, fitted)

    def _is_other(self, i: int, j: int) -> bool:
        """Return True if conversation `j` shares no question with conversation `i`."""
        return self._talks[i] is not self._before[j] and self._talks[j] is not self._before[i]

    def _average(self, rows: Sequence[Array]) -> dict[str, list[float]]:
        """Return the percentages of each data set, from the shares of the questions of each conversation."""
        found = {}
        for name in dict.fromkeys(self._names):
            own = np.concatenate([row for row, each in zip(rows, self._names, strict=True) if each == name])
            found[name] = (100 * own.mean(axis=0)).round(1).tolist()
        return found

    def _measure(self, i: int) -> Array:
        """Return the share of the evidence of each question of a conversation, by budget."""
        talk, rows = self._talks[i], []
        for question, evidence in talk.questions:
            ranked = rank(self._indexes[i], question)
            given = [render_ranked(self._indexes[i], ranked, budget, self._counter) for budget in self._budgets]
            rows.append([self._share(talk.units, each, evidence) for each in given])
        return np.array(rows)

    # Weights

    def _measure_weights(self) -> list[Array]:
        variants = [Weights(), *list_variants()]
        found = np.array([[self._estimate(i, each) for i in range(len(self._talks))] for each in variants])
        rows = []
        for i in range(len(self._talks)):
            self._indexes[i].weights = variants[self._choose(found, i)]
            rows.append(self._measure(i))
            self._indexes[i].weights = Weights()
        return rows

    def _choose(self, found: Array, i: int) -> int:
        """Return the number of the first variant that finds most in the conversations other than `i`.

        `found` has a row for each variant, with what it finds in each conversation. The data sets count alike.
        """
        names = np.array(self._names)
        kept = np.arange(len(names)) != i
        sets = [kept & (names == name) for name in dict.fromkeys(self._names)]
        return int(np.argmax(np.mean([found[:, each].mean(axis=1) for each in sets if each.any()], axis=0).round(6)))

    def _estimate(self, i: int, weights: Weights) -> float:
        """Return the average percentage of a conversation, with hits taken in order as far as they fit."""
        index, talk = self._indexes[i], self._talks[i]
        index.weights = weights
        examples = [make_example(rank(index, question), evidence) for question, evidence in talk.questions]
        index.weights = Weights()
        return float(np.mean(train.measure(examples, lambda each: each.scores)))

    # The ranker

    @cached_property
    def _shipped(self) -> Model:
        return reranking.load_model(by_meaning=self._indexes[0].vectors is not None)

    @cached_property
    def _examples(self) -> tuple[list[str], list[list[train.Example]]]:
        """The names of the ranker's features, and the best parts for the questions of each conversation."""
        names: list[str] = []
        found = [
            [
                example
                for question, evidence in talk.questions
                if (example := train.make_example(index, question, evidence, names)) is not None
            ]
            for talk, index in zip(self._talks, self._indexes, strict=True)
        ]
        return names, found

    def _measure_ranker(self) -> list[Array]:
        names, found = self._examples
        rows = []
        for i in range(len(self._talks)):
            others = [each for j, examples in enumerate(found) if j != i for each in examples]
            model = train.fit(others, names, _PENALTY)
            model = msgspec.structs.replace(model, brevity=self._shipped.brevity, vectors=self._shipped.vectors)
            rows.append(self._measure_model(i, model))
        return rows

    def _measure_models(self, models: dict[str, Model]) -> tuple[list[Array], list[str]]:
        """Measure each conversation with the model that finds most in the others; return the names of these too."""
        names, found = self._examples
        scores = [make_score(each, self._shipped, names) for each in models.values()]
        estimates = np.array(
            [[np.mean(train.measure(each, score)) if each else 0.0 for each in found] for score in scores]
        )
        chosen = [list(models)[self._choose(estimates, i)] for i in range(len(self._talks))]
        return [self._measure_model(i, models[name]) for i, name in enumerate(chosen)], chosen

    def _measure_model(self, i: int, model: Model) -> Array:
        with mock.patch.object(reranking, "load_model", return_value=model):
            return self._measure(i)

    # The gate

    def _observe(self, i: int) -> list[Observed]:
        """Return what is found for the questions of a conversation, and for those of the one before it."""
        index, talk, before = self._indexes[i], self._talks[i], self._before[i]
        questions = [(question, evidence, True) for question, evidence in talk.questions]
        if before is not talk:
            questions += [(question, evidence, False) for question, evidence in before.questions[:_STRANGERS]]
        seen = []
        for question, evidence, is_own in questions:
            with mock.patch.object(ranking, "estimate_need", wraps=ranking.estimate_need) as estimate:
                ranked = rank(index, question)
            found = estimate.call_args.args[0] if estimate.called else None

            def give(limit: int, i: int = i, ranked: RankedHits = ranked) -> Recalled:
                return render_ranked(self._indexes[i], ranked, limit, self._counter)

            def score(given: Recalled, i: int = i, evidence: frozenset[int] = evidence) -> float:
                return self._share(self._talks[i].units, given, evidence)

            seen.append(Observed(found, ranked.need, is_own, give, score))
        return seen

    def _average_gate(self, seen: Sequence[list[Observed]], needs: Sequence[Array]) -> dict[str, list[float]]:
        found = {}
        for name in dict.fromkeys(self._names):
            lost, spent = [], []
            for own, talk_seen, talk_needs in zip(self._names, seen, needs, strict=True):
                for each, need in zip(talk_seen, talk_needs, strict=True) if own == name else ():
                    given = each.give(int(_GATED * choose_share(float(need))))
                    if each.is_own:
                        lost.append(each.score(each.give(_GATED)) - each.score(given))
                    else:
                        spent.append(given.tokens / _GATED)
            found[name] = [round(100 * float(np.mean(each)), 1) if each else 0.0 for each in (lost, spent)]
        return found


class Observed(NamedTuple):
    """What is found for a message, and what recall gives for it."""

    found: Evidence | None
    """None if its need follows without an estimate, as for a day that it names."""
    need: float
    is_own: bool
    """Whether it is about this conversation."""
    give: Callable[[int], Recalled]
    score: Callable[[Recalled], float]


def list_variants() -> Iterator[Weights]:
    """Yield the hand-set weights with one of them changed. The size of parts would need another index."""
    for name in Weights.__struct_fields__:
        value = getattr(Weights(), name)
        for factor in _FACTORS if name != "part" else ():
            changed = [(at, share * factor) for at, share in value] if name == "borrow" else type(value)(value * factor)
            yield msgspec.structs.replace(Weights(), **{name: changed})


def list_without_features(model: Model) -> dict[str, Model]:
    """Return a model, and what is learned without each of its features and each kind of them, by what is removed."""
    talks = generate_talks(train.SEED, train.DIALOGUES, train.CHATS)
    names, examples = train.list_examples(talks, meaning=bool(model.vectors))
    training, tested = train.split(examples)
    held_out = [each for examples in tested for each in examples]
    found = {"none": model}
    for removed in (*((name,) for name in names), *_KINDS):
        if set(removed) <= set(names):
            kept = [i for i, name in enumerate(names) if name not in removed]
            fitted = train.fit(train.pick_features(training, kept), [names[i] for i in kept], _PENALTY)
            fitted = train.calibrate(msgspec.structs.replace(fitted, brevity=model.brevity), held_out, names)
            found[" + ".join(removed)] = msgspec.structs.replace(fitted, vectors=model.vectors)
    return found


def list_forms(model: Model) -> dict[str, Model]:
    """Return a model, the model with other powers of the length, and one that leaves the hand-set order as it is."""
    found = {f"brevity {each:g}": msgspec.structs.replace(model, brevity=each) for each in train.BREVITIES}
    # A model of other word vectors is not used.
    found["hand-set"] = msgspec.structs.replace(model, vectors="none")
    return {f"brevity {model.brevity:g}": model, **found}


def make_score(model: Model, shipped: Model, names: Sequence[str]) -> Callable[[train.Example], Array]:
    """Return a function that scores parts as this model does, or as the hand-set weights do if it is not used."""
    return train.make_score(model, names) if model.vectors == shipped.vectors else lambda each: each.scores


def make_example(ranked: RankedHits, evidence: frozenset[int]) -> train.Example:
    """Return the best hits of a question as an example without features."""
    hits = ranked.hits[: 2 * reranking.MAX_RERANKED]
    positions = np.array([hit.position for hit in hits])
    labels = np.isin(positions, list(evidence)).astype(float)
    sizes, scores = np.array([hit.stop - hit.start for hit in hits]), np.array([hit.score for hit in hits])
    return train.Example(np.zeros((len(hits), 0)), labels, positions, sizes, scores, len(evidence))


def fit_gate(seen: Sequence[Observed]) -> Callable[[Sequence[Observed]], Array]:
    """Return a function that estimates the needs of messages, with weights fitted to these.

    Messages about a conversation and about another one count alike. Without both kinds, the needs stay as they are.
    """
    known = [each for each in seen if each.found is not None]
    if len({each.is_own for each in known}) < 2:
        return lambda messages: np.array([each.need for each in messages])
    values = np.array([describe(each.found) for each in known if each.found])
    labels = np.array([each.is_own for each in known], float)
    importance = np.where(labels == 1, 0.5 / labels.mean(), 0.5 / (1 - labels.mean()))
    mean, deviation = values.mean(axis=0), values.std(axis=0) + 1e-9
    scaled = np.append((values - mean) / deviation, np.ones((len(values), 1)), axis=1)
    weights = np.zeros(scaled.shape[1])
    penalty = _RIDGE * len(values) * np.diag([*[1.0] * len(mean), 0.0])
    for _ in range(30):  # Newton's method
        chances = 1 / (1 + np.exp(-scaled @ weights))
        gradient = scaled.T @ (importance * (chances - labels)) + penalty @ weights
        curvature = (scaled * (importance * chances * (1 - chances))[:, None]).T @ scaled + penalty
        weights = weights - np.linalg.solve(curvature, gradient)

    def estimate(messages: Sequence[Observed]) -> Array:
        needs = []
        for each in messages:
            if each.found is None or each.found.match <= 0:
                needs.append(each.need)
            else:
                total = np.append((np.array(describe(each.found)) - mean) / deviation, 1.0) @ weights
                needs.append(float(1 / (1 + np.exp(-total))))
        return np.array(needs)

    return estimate


def describe(found: Evidence) -> list[float]:
    """Return what `estimate_need` weighs."""
    return [
        math.log(0.05 + min(found.match, 1.2)),
        found.known,
        math.log1p(10 * min(found.pairs, 1.0)),
        float(found.names_speaker),
        float(found.refers_back and not found.names_speaker),
        (1 - found.question_share) ** 1.5,
    ]


def compare_left_out(
    sets: dict[str, list[Talk]],
    budgets: Sequence[int],
    counter: Counter,
    share: Callable[[Sequence[Unit], Recalled, frozenset[int]], float],
    *,
    meaning: bool,
) -> None:
    """Print what recall finds as it is shipped, and with what the other conversations would choose."""
    made = LeftOut(sets, budgets, counter, share, meaning=meaning)
    tokens = ", ".join(f"{each:,}" for each in budgets)
    print(f"\nBy {'meaning' if meaning else 'words'}: recall in percent, at {tokens} tokens")
    for title, found in made.measure_all():
        print(f"{title:12}" + "   ".join(f"{name} {values}" for name, values in found.items()), flush=True)
    print(f"\nThe gate at {_GATED:,} tokens: points lost, and percent of the budget for questions about another one")
    for title, found in made.measure_gate():
        print(f"{title:12}" + "   ".join(f"{name} {values}" for name, values in found.items()), flush=True)

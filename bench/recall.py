"""How much of what answers a question is recalled within a budget, and what that costs, beside plain BM25.

`python -m bench.recall PATH…` with LoCoMo files (JSON) and BEAM files (JSON lines). It measures the ranking core, not
yet a whole turn: an index of the conversation's messages, `Index.rank` for each question, `fill` and `render` within a
budget of tokens (characters / 4, so that figures compare). All counts against the budget: names, dates, marks.

Recall is the share of a question's evidence whose text is in what was rendered, averaged over the questions; "all" the
share of questions with all of it. A user's message counts when it is there whole, an assistant's when a part of it is.
LoCoMo: categories 1 to 4, the text of turns only, without captions. BEAM: the seven abilities that ask for facts.

The floor, in the same run: BM25 over whole messages with stop words and stemming, filled in the same way. With the
extra `[recall]` installed, recall by meaning is measured too. "Gated" is recall when only as much of the budget is
spent as the message is found to need; "strangers" is how much of it questions about another conversation are given.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from longtalk.memory.excerpt import fill, render
from longtalk.memory.recall import Hit, Index, Ranked, Unit
from longtalk.memory.terms import terms

BUDGETS = (300, 1_000, 2_000, 4_000)
FACTS = frozenset(
    (
        *("contradiction_resolution", "information_extraction", "instruction_following", "knowledge_update"),
        *("multi_session_reasoning", "preference_following", "temporal_reasoning"),
    )
)
GOALS = {
    ("LoCoMo", "recall"): (74, 86, 90, 93),
    ("BEAM", "recall"): (60, 78, 86, 90),
    ("LoCoMo", "recall by meaning"): (77, 89, 93, 95),
    ("BEAM", "recall by meaning"): (62, 80, 87, 91),
}


class Talk(msgspec.Struct, frozen=True):
    """A conversation with its questions and the places that answer them."""

    units: list[Unit]
    questions: list[tuple[str, frozenset[int]]]


class Figures(msgspec.Struct):
    """What was measured over all questions, in shares and milliseconds."""

    found: list[float]
    complete: list[float]
    gated: float = 0.0
    strangers: float = 0.0
    query: float = 0.0
    unit: float = 0.0


# The data


def read(path: Path) -> tuple[str, list[Talk]]:
    """The name of a set, and its conversations."""
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl":
        return "BEAM", [beam(json.loads(line)) for line in text.splitlines() if line.strip()]
    return "LoCoMo", [locomo(each) for each in json.loads(text)]


def locomo(data: dict[str, Any]) -> Talk:
    """Two people, in dated sessions."""
    said = data["conversation"]
    units: list[Unit] = []
    places: dict[tuple[int, int], int] = {}
    for number in sorted(int(key[8:]) for key in said if re.fullmatch(r"session_\d+", key)):
        at = seconds(said[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y")
        for turn in said[f"session_{number}"]:
            session, line = re.findall(r"\d+", turn["dia_id"])
            places[int(session), int(line)] = len(units)
            units.append(Unit(len(units), "user", turn["text"], at, turn["speaker"]))
    questions = []
    for asked in data["qa"]:
        named = re.findall(r"D:?(\d+):(\d+)", " ".join(asked["evidence"]))
        evidence = {places[key] for a, b in named if (key := (int(a), int(b))) in places}
        if asked["category"] != 5 and evidence:
            questions.append((asked["question"], frozenset(evidence)))
    return Talk(units, questions)


def beam(data: dict[str, Any]) -> Talk:
    """A user and an assistant; a date where a session begins."""
    at = 0
    units: list[Unit] = []
    places: dict[int, int] = {}
    for message in data["messages"]:
        at = seconds(message["time"], "%B-%d-%Y") if message["time"] else at
        places[message["id"]] = len(units)
        units.append(Unit(len(units), message["role"], message["content"], at))
    asked = [each for each in data["questions"] if each["ability"] in FACTS and each["evidence"]]
    return Talk(units, [(each["question"], frozenset(places[one] for one in each["evidence"])) for each in asked])


def seconds(text: str, form: str) -> int:
    """A date as seconds since 1970."""
    return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp())


# The floor


class Floor(Index):
    """Plain BM25 over whole messages."""

    def __init__(self, units: Sequence[Unit]) -> None:
        super().__init__()
        self.units = list(units)
        self._places = {unit.place: number for number, unit in enumerate(units)}
        self.found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self.sizes: list[int] = []
        for number, unit in enumerate(units):
            counts = Counter(terms(unit.text))
            self.sizes.append(counts.total())
            for term, times in counts.items():
                self.found[term].append((number, times))

    def rank(self, query: str, **_: Any) -> Ranked:
        usual = sum(self.sizes) / len(self.sizes)
        scores: dict[int, float] = defaultdict(float)
        for term in dict.fromkeys(terms(query)):
            having = self.found.get(term, [])
            rarity = math.log(1 + (len(self.units) - len(having) + 0.5) / (len(having) + 0.5))
            for number, times in having:
                scores[number] += rarity * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * self.sizes[number] / usual))
        order = sorted(scores, key=lambda number: (-scores[number], number))
        return Ranked(tuple(Hit(self.units[i].place, scores[i], 0, len(self.units[i].text)) for i in order), 1.0)


# What is measured


def there(index: Index, hits: Sequence[Hit], text: str, place: int) -> bool:
    """Whether a message is in what was rendered: whole, or of an assistant's a part."""
    unit = index.at(place)
    if unit.role == "assistant":
        return any(hit.place == place for hit in hits)
    return unit.text.strip() in text


def share(index: Index, hits: Sequence[Hit], budget: int, evidence: frozenset[int]) -> float:
    """How much of the evidence is there."""
    chosen = fill(index, hits, 4 * budget, len)
    text = render(index, chosen)
    assert len(text) <= 4 * budget
    return sum(there(index, chosen, text, place) for place in evidence) / len(evidence)


def measure(talks: Sequence[Talk], build: Callable[[list[Unit]], Index]) -> Figures:
    """All questions of all conversations."""
    figures = Figures([0.0] * len(BUDGETS), [0.0] * len(BUDGETS))
    count = sum(len(talk.questions) for talk in talks)
    for talk, other in zip(talks, [*talks[1:], *talks[:1]], strict=True):
        begun = time.process_time()
        index = build(talk.units)
        index.rank("hello")  # vectors are made when they are first needed
        figures.unit += 1e3 * (time.process_time() - begun) / sum(len(each.units) for each in talks)
        for question, evidence in talk.questions:
            begun = time.process_time()
            ranked = index.rank(question)
            figures.query += 1e3 * (time.process_time() - begun) / count
            for i, budget in enumerate(BUDGETS):
                found = share(index, ranked.hits, budget, evidence)
                figures.found[i] += found / count
                figures.complete[i] += (found == 1) / count
            figures.gated += share(index, ranked.hits, int(ranked.need * BUDGETS[1]), evidence) / count
        strange = [index.rank(question).need for question, _ in other.questions[:20]]
        figures.strangers += sum(strange) / max(1, len(strange)) / len(talks)
    return figures


def ways() -> Iterator[tuple[str, Callable[[list[Unit]], Index]]]:
    """What is compared."""
    yield "floor (BM25)", Floor
    yield "recall", Index
    if importlib.util.find_spec("wordllama"):
        yield "recall by meaning", lambda units: Index(units, meaning=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How much of what answers a question is recalled within a budget.")
    parser.add_argument("paths", nargs="*", type=Path, help="LoCoMo (.json) and BEAM (.jsonl) files")
    given = parser.parse_args(arguments)
    goals = []
    if not given.paths:
        print("No data: name LoCoMo or BEAM files to measure recall.")
    for path in given.paths:
        name, talks = read(path)
        count = sum(len(talk.questions) for talk in talks)
        print(f"{name}: {len(talks)} conversations, {count} questions. Recall (all) in percent at tokens:\n")
        print(f"{'':20}" + "".join(f"{budget:>14,}" for budget in BUDGETS) + "   gated  strangers  ms/query  ms/unit")
        for way, build in ways():
            found = measure(talks, build)
            row = [f"{100 * a:.1f} ({100 * b:.1f})" for a, b in zip(found.found, found.complete, strict=True)]
            costs = f"{100 * found.gated:8.1f}{100 * found.strangers:11.1f}{found.query:10.2f}{found.unit:9.3f}"
            print(f"{way:20}" + "".join(f"{each:>14}" for each in row) + costs)
            for budget, value, goal in zip(BUDGETS, found.found, GOALS.get((name, way), ()), strict=False):
                percent = round(100 * value, 1)
                title = f"{name}, {way} at {budget}"
                goals.append({"name": title, "value": percent, "goal": goal, "met": percent >= goal})
        print()
    print(json.dumps({"bench": "recall", "goals": goals}))


if __name__ == "__main__":
    main()

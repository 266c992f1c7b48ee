"""The share of a question's evidence that is recalled within a budget, and the CPU time, compared with plain BM25.

`python -m bench.recall PATH…` reads LoCoMo files (JSON) and BEAM files (JSONL). Each conversation is imported into a
SQLite store as messages of the chat wire; in LoCoMo, both people are users, each with a `name`. Each question is the
message of a turn, on a branch of its own, under a `Memory` that sends nothing but what it recalls. The manifest and the
request show what was recalled. The budget is in tokens (characters / 4, so that figures are comparable) and includes
tags, names and dates.

Recall is the share of a question's evidence that was recalled, averaged over the questions; "all" is the share of
questions with all of their evidence. A user's message counts if all of it was recalled, an assistant's if any part was.
LoCoMo: categories 1 to 4, the text of turns only, without captions. BEAM: the seven abilities that ask for facts.

The floor, in the same run, is BM25 over whole messages with stop words and stemming, within the same budget. With the
extra `[recall]`, recall by meaning is measured too. "Gated" is recall at 1,000 tokens if Longtalk spends only what the
message seems to need. "Strangers" is the share of the budget spent on questions about another conversation, and "small
talk" that for messages about none. The CPU time of a query, at a budget of 1,000 tokens, covers finding, ranking and
rendering, not the rest of the turn.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench.recall_left_out import compare_left_out
from bench.recall_owner import import_sessions, measure_owner
from longtalk import Conversation, Memory, Recall
from longtalk._util import json_bytes
from longtalk.memory.recall.config import Recalled
from longtalk.memory.recall.index import Hit, RankedHits, RecallIndex, Unit
from longtalk.memory.recall.search import index_store, render_ranked, render_recalled
from longtalk.memory.terms import extract_terms
from longtalk.stores.base import MAIN, Store
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import Scripted, says
from longtalk.transcript.pack import Entry
from longtalk.transcript.transcript import link_entries, now
from longtalk.transfer.conversation_export import BranchPart, ConversationExport
from longtalk.transfer.load import import_exports
from longtalk.turn.draft import add_token_counts

BUDGETS = (300, 1_000, 2_000, 4_000)
ABILITIES = frozenset(
    (
        *("contradiction_resolution", "information_extraction", "instruction_following", "knowledge_update"),
        *("multi_session_reasoning", "preference_following", "temporal_reasoning"),
    )
)
GOALS = {
    ("LoCoMo", "recall"): (77, 88, 92, 95),
    ("BEAM", "recall"): (62, 82, 88, 92),
    ("LoCoMo", "recall by meaning"): (80, 90, 94, 97),
    ("BEAM", "recall by meaning"): (65, 84, 90, 94),
}


SMALL_TALK = (
    *("thanks, that helps!", "Good night!", "Yes, please go on.", "write me a haiku about rain", "what's 17*23?"),
    *("Tell me a joke.", "What is the capital of Mongolia?", "Could you make it shorter?", "Why is the sky blue?"),
    "Write a function that reverses a linked list, with tests, and explain its complexity to a beginner.",
    "Draft a polite letter to a landlord who has not repaired the heating for three weeks, and keep it to one page.",
)


class Talk(msgspec.Struct, frozen=True):
    """A conversation with its questions, and the positions that answer each."""

    units: list[Unit]
    questions: list[tuple[str, frozenset[int]]]


class Figures(msgspec.Struct):
    """Averages over all questions, as shares and milliseconds."""

    found: list[float]
    complete: list[float]
    gated: float = 0.0
    strangers: float = 0.0
    small: float = 0.0
    query: float = 0.0


class Characters:
    """Counts a token for each four characters."""

    def count(self, text: str) -> int:
        return -(-len(text) // 4)


# The data


def read_talks(path: Path) -> tuple[str, list[Talk]]:
    """Return the name of a data set and its conversations."""
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl":
        return "BEAM", [parse_beam(json.loads(line)) for line in text.splitlines() if line.strip()]
    return "LoCoMo", [parse_locomo(each) for each in json.loads(text)]


def parse_locomo(data: dict[str, Any]) -> Talk:
    """Return a LoCoMo dialogue of two people in dated sessions."""
    said = data["conversation"]
    units: list[Unit] = []
    positions: dict[tuple[int, int], int] = {}
    for number in sorted(int(key[8:]) for key in said if re.fullmatch(r"session_\d+", key)):
        at = parse_date(said[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y")
        for turn in said[f"session_{number}"]:
            session, line = re.findall(r"\d+", turn["dia_id"])
            positions[int(session), int(line)] = len(units)
            units.append(Unit(len(units), "user", turn["text"], at, turn["speaker"]))
    questions = []
    for asked in data["qa"]:
        named = re.findall(r"D:?(\d+):(\d+)", " ".join(asked["evidence"]))
        evidence = {positions[key] for a, b in named if (key := (int(a), int(b))) in positions}
        if asked["category"] != 5 and evidence:
            questions.append((asked["question"], frozenset(evidence)))
    return Talk(units, questions)


def parse_beam(data: dict[str, Any]) -> Talk:
    """Return a BEAM conversation of a user and an assistant, with a date at the start of each session."""
    at = 0
    units: list[Unit] = []
    positions: dict[int, int] = {}
    for message in data["messages"]:
        at = parse_date(message["time"], "%B-%d-%Y") if message["time"] else at
        positions[message["id"]] = len(units)
        units.append(Unit(len(units), message["role"], message["content"], at))
    asked = [each for each in data["questions"] if each["ability"] in ABILITIES and each["evidence"]]
    return Talk(units, [(each["question"], frozenset(positions[one] for one in each["evidence"])) for each in asked])


def parse_date(text: str, form: str) -> int:
    """Return a date as seconds since 1970."""
    return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp())


# The floor


class Floor(RecallIndex):
    """Plain BM25 over whole messages."""

    def __init__(self, units: Sequence[Unit]) -> None:
        super().__init__()
        self.units = list(units)
        for unit in units:
            self.hold_unit(unit)
        self.found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self.sizes: list[int] = []
        for number, unit in enumerate(units):
            counts = Counter(extract_terms(unit.text))
            self.sizes.append(counts.total())
            for term, times in counts.items():
                self.found[term].append((number, times))

    def rank(self, query: str) -> RankedHits:
        """Return the messages that have words of the query, best first."""
        usual = sum(self.sizes) / len(self.sizes)
        scores: dict[int, float] = defaultdict(float)
        for term in dict.fromkeys(extract_terms(query)):
            having = self.found.get(term, [])
            rarity = math.log(1 + (len(self.units) - len(having) + 0.5) / (len(having) + 0.5))
            for number, times in having:
                scores[number] += rarity * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * self.sizes[number] / usual))
        order = sorted(scores, key=lambda number: (-scores[number], number))
        return RankedHits(tuple(Hit(self.units[i].position, scores[i], 0, len(self.units[i].text)) for i in order), 1.0)


# What is measured


def make_entries(units: Sequence[Unit]) -> tuple[Entry, ...]:
    """Return the units as entries of the chat wire."""
    made: list[Entry] = []
    for unit in units:
        named = {"name": unit.name} if unit.name else {}
        native = json_bytes.encode({"role": unit.role, **named, "content": unit.text})
        entry = Entry(role=unit.role, wire="openai-chat", native=native, at=1000 * unit.at)
        made += link_entries(
            made[-1].id if made else None, f"t{unit.position}", 0, add_token_counts([entry], Characters())
        )
    return tuple(made)


def share_of_evidence(units: Sequence[Unit], given: Recalled, evidence: frozenset[int]) -> float:
    """Return the share of the evidence that was recalled: whole user messages, or any part of an assistant's."""
    there = []
    for position in evidence:
        unit = units[position]
        there.append(position in given.positions if unit.role == "assistant" else unit.text.strip() in given.text)
    return sum(there) / len(there)


Given = Callable[[int, str, Recall], Recalled]
"""Takes the number of a conversation, a message and the settings, and returns what is recalled."""


def measure(talks: Sequence[Talk], given: Given, query: Given, *, meaning: bool = False) -> Figures:
    """Ask all questions of all conversations, and return the averages. Only `query` is timed."""
    figures = Figures([0.0] * len(BUDGETS), [0.0] * len(BUDGETS))
    count = sum(len(talk.questions) for talk in talks)
    configs = [Recall(budget, gate=False, meaning=meaning) for budget in BUDGETS]
    gated = Recall(BUDGETS[1], meaning=meaning)
    for number, talk in enumerate(talks):
        query(number, "hello", gated)  # the first query builds the index
        for question, evidence in talk.questions:
            for i, config in enumerate(configs):
                made = given(number, question, config)
                assert made.tokens <= config.budget
                part = share_of_evidence(talk.units, made, evidence)
                figures.found[i] += part / count
                figures.complete[i] += (part == 1) / count
            figures.gated += share_of_evidence(talk.units, given(number, question, gated), evidence) / count
            begun = time.process_time()
            query(number, question, configs[1])
            figures.query += 1e3 * (time.process_time() - begun) / count
        strangers = [question for question, _ in talks[number - 1].questions[:20]] if len(talks) > 1 else []
        figures.strangers += measure_spent(partial(query, number), strangers, gated) / len(talks)
        figures.small += measure_spent(partial(query, number), SMALL_TALK, gated) / len(talks)
    return figures


def measure_spent(given: Callable[[str, Recall], Any], messages: Sequence[str], config: Recall) -> float:
    """Return the share of the budget that these messages use."""
    tokens = [given(message, config).tokens for message in messages]
    return sum(tokens) / (config.budget * max(1, len(tokens)))


def measure_methods(talks: Sequence[Talk], store: Store) -> Iterator[tuple[str, Figures]]:
    """Yield the name and the figures of each method."""

    def by_floor(number: int, message: str, config: Recall) -> Recalled:
        floor = floors[number]
        return render_ranked(floor, floor.rank(message), config.budget, Characters())

    def by_store(number: int, message: str, config: Recall) -> Recalled:
        index = index_store(store, "", str(number), MAIN, len(talks[number].units), message, config)
        return render_recalled(index, message, config, Characters(), now=now())

    def by_turn(number: int, message: str, config: Recall) -> Recalled:
        policy = Memory(outline=0, recent=0, recall=config, limit=0)
        model = Scripted(says("Well."))
        talk = Conversation(str(number), model=model, store=store, policy=policy, counter=Characters())
        context = talk.fork().send(message).context
        assert context is not None
        runs = [run for run in context.manifest if run.verdict == "recalled"]
        positions = [position for run in runs for position in range(run.first, run.last + 1)]
        sent = [each["content"] for each in json.loads(model.requests[0])["messages"]]
        text = next((each for each in sent if each.startswith("<memory>")), "")
        return Recalled(text, tuple(positions), context.recall)

    floors = [Floor(talk.units) for talk in talks]
    yield "floor (BM25)", measure(talks, by_floor, by_floor)
    yield "recall", measure(talks, by_turn, by_store)
    if importlib.util.find_spec("wordllama"):
        yield "recall by meaning", measure(talks, by_turn, by_store, meaning=True)


def compare_with_owner(name: str, talks: Sequence[Talk]) -> list[dict[str, Any]]:
    """Print recall over an owner's conversations beside that in one conversation, and return the goals."""
    goals = []
    with tempfile.TemporaryDirectory() as folder:
        store = SQLite(Path(folder) / "talks.db")
        for number, talk in enumerate(talks):
            whole = ConversationExport(
                id=str(number), branches=(BranchPart(name=MAIN, entries=make_entries(talk.units)),)
            )
            import_exports(store, "", [whole])
            import_sessions(store, number, talk.units, make_entries)
        pairs = [(talk.units, talk.questions) for talk in talks]
        others, spent = measure_owner(store, pairs, BUDGETS, Characters(), share_of_evidence)
        one = next(found for way, found in measure_methods(talks, store) if way == "recall")
        store.close()
    print(f"{name}: recall in percent, by token budget; each session as a conversation of its own:\n")
    for title, found in (("one conversation", one.found), ("each session its own", others)):
        print(f"{title:22}" + "".join(f"{100 * each:9.1f}" for each in found))
    print(f"\nA turn that searches all of them takes {spent:.1f} ms of CPU.\n")
    for budget, before, after in zip(BUDGETS, one.found, others, strict=True):
        lost = round(100 * (before - after), 1)
        goals.append(
            {"name": f"{name}, points lost over the owner at {budget}", "value": lost, "goal": 2, "met": lost <= 2}
        )
    return goals


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its figures and goals."""
    parser = argparse.ArgumentParser(description="The share of a question's evidence that is recalled.")
    parser.add_argument("paths", nargs="*", type=Path, help="LoCoMo (.json) and BEAM (.jsonl) files")
    parser.add_argument(
        "--owner", action="store_true", help="only: each session of LoCoMo as a conversation of its own"
    )
    parser.add_argument(
        "--left-out", action="store_true", help="only: what is found with choices made without the conversation"
    )
    given = parser.parse_args(arguments)
    goals: list[dict[str, Any]] = []
    if not given.paths:
        print("No data. Pass LoCoMo or BEAM files to measure recall.")
    if given.left_out:
        for meaning in (False, True)[: 1 + bool(importlib.util.find_spec("wordllama"))]:
            sets = dict(read_talks(path) for path in given.paths)
            compare_left_out(sets, BUDGETS, Characters(), share_of_evidence, meaning=meaning)
        return
    for path in given.paths:
        name, talks = read_talks(path)
        if given.owner:
            goals += compare_with_owner(name, talks)
            continue
        count = sum(len(talk.questions) for talk in talks)
        print(f"{name}: {len(talks)} conversations, {count} questions. Recall (all) in percent, by token budget:\n")
        titles = "   gated  strangers  small talk  ms/query"
        print(f"{'':20}" + "".join(f"{budget:>14,}" for budget in BUDGETS) + titles)
        with tempfile.TemporaryDirectory() as folder:
            store = SQLite(Path(folder) / "talks.db")
            for number, talk in enumerate(talks):
                import_exports(
                    store,
                    "",
                    [
                        ConversationExport(
                            id=str(number), branches=(BranchPart(name=MAIN, entries=make_entries(talk.units)),)
                        )
                    ],
                )
            for way, found in measure_methods(talks, store):
                row = [f"{100 * a:.1f} ({100 * b:.1f})" for a, b in zip(found.found, found.complete, strict=True)]
                shares = f"{100 * found.gated:8.1f}{100 * found.strangers:11.1f}{100 * found.small:12.1f}"
                print(f"{way:20}" + "".join(f"{each:>14}" for each in row) + shares, end="")
                print(f"{found.query:10.1f}", flush=True)
                for budget, value, goal in zip(BUDGETS, found.found, GOALS.get((name, way), ()), strict=False):
                    percent = round(100 * value, 1)
                    title = f"{name}, {way} at {budget}"
                    goals.append({"name": title, "value": percent, "goal": goal, "met": percent >= goal})
                if way != "floor (BM25)":
                    lost = round(100 * (found.found[BUDGETS.index(1_000)] - found.gated), 1)
                    spent = round(100 * found.strangers, 1)
                    for title, value, most in (("points lost by the gate", lost, 1.5), ("% for strangers", spent, 10)):
                        goals.append(
                            {"name": f"{name}, {way}, {title}", "value": value, "goal": most, "met": value <= most}
                        )
            store.close()
        print()
    print(json.dumps({"bench": "recall", "goals": goals}))


if __name__ == "__main__":
    main()

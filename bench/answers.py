"""How well a local model answers questions about a long conversation, from the context that each policy sends.

`python -m bench.answers locomo.json` draws 40 questions of a LoCoMo file, equally many of each conversation and each
category, and asks the local model of 1.5B. It answers from at most 2,000 tokens (characters / 4):

- nothing: the question alone, as a floor.
- the last messages: as many as fit.
- Memory without recall: outlines of what is older, and the last messages.
- Memory with recall: the same in half of the tokens, and what is recalled for the question in the other half.
- the evidence: the messages that answer the question, by their dates and speakers, as a ceiling.

No model takes notes in these conversations, so `Memory` has no brief here.

An answer is scored as in LoCoMo's paper, without a model as judge: by F1 over stemmed words without articles. An answer
with several parts gets the average over the parts of the best F1. "Tokens" are those of the request by the model's own
count, and "dollars" is the cost of 1,000 such questions at the prices of a small hosted model, with the shares that the
local model read from its cache.

Answers are kept by the digest of their requests in a file (`--answers`), so a run that was stopped goes on where it
was, and what has not changed is not asked again. With two threads and no answers, a run takes about an hour.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import re
import string
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.recall import Characters, make_entries, parse_date
from longtalk import Chat, Conversation, Memory, Recall, TokenBudget
from longtalk._sync.providers.factory import connect
from longtalk._util import json_bytes
from longtalk.memory.recall.excerpt import render_date
from longtalk.memory.recall.index import Unit
from longtalk.memory.terms import stem
from longtalk.models import registry
from longtalk.models.call_cost import cost
from longtalk.policies.base import Policy
from longtalk.providers.base import Provider
from longtalk.providers.local.weights import find_missing
from longtalk.stores.base import MAIN, Store
from longtalk.stores.sqlite.store import SQLite
from longtalk.transfer.conversation_export import BranchPart, ConversationExport
from longtalk.transfer.load import import_exports
from longtalk.usage import Usage

MODEL = "1.5b"
PRICED = "openai:gpt-5-mini"
TOKENS = 2_000
POLICIES: dict[str, Policy] = {
    "the last messages": TokenBudget(TOKENS, sliding=True),
    "Memory without recall": Memory(limit=TOKENS, recent=TOKENS - 250, recall=0),
    "Memory with recall": Memory(limit=TOKENS // 2, recent=TOKENS // 2 - 250, recall=Recall(TOKENS // 2)),
}
WAYS = ("nothing", *POLICIES, "the evidence")
SYSTEM = (
    "Two friends talk. You answer questions about their talk in a few words, from what they say. "
    "Answer with the words of the talk where you can, and never with a whole sentence."
)
_CATEGORIES = {1: "several", 2: "time", 3: "inference", 4: "one"}
_SEVERAL_PARTS = 1


class Question(msgspec.Struct, frozen=True):
    """A question about a conversation, with the right answer and the messages that have it."""

    category: int
    text: str
    answer: str
    evidence: tuple[Unit, ...]


class Talk(msgspec.Struct, frozen=True):
    """A conversation and the questions to ask about it."""

    units: list[Unit]
    questions: list[Question]


class Result(msgspec.Struct):
    """The scores of one way to answer, by category, and the usage of each of its requests."""

    scores: dict[int, list[float]] = msgspec.field(default_factory=lambda: {each: [] for each in _CATEGORIES})
    usages: list[Usage] = msgspec.field(default_factory=list)


# The data


def parse_talk(data: dict[str, Any]) -> Talk:
    """Return a LoCoMo dialogue with all its questions of categories 1 to 4."""
    said = data["conversation"]
    units: list[Unit] = []
    by_id: dict[str, Unit] = {}
    for number in sorted(int(key[8:]) for key in said if re.fullmatch(r"session_\d+", key)):
        at = parse_date(said[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y")
        for turn in said[f"session_{number}"]:
            by_id[turn["dia_id"]] = Unit(len(units), "user", turn["text"], at, turn["speaker"])
            units.append(by_id[turn["dia_id"]])
    questions = []
    for asked in data["qa"]:
        named = [f"D{a}:{b}" for a, b in re.findall(r"D:?(\d+):(\d+)", " ".join(asked["evidence"]))]
        evidence = tuple(by_id[each] for each in dict.fromkeys(named) if each in by_id)
        if asked["category"] in _CATEGORIES and evidence:
            questions.append(Question(asked["category"], asked["question"], str(asked["answer"]), evidence))
    return Talk(units, questions)


def draw_questions(talks: Sequence[Talk], count: int) -> list[Talk]:
    """Return the conversations with a share of the questions each: always the same, and equally many per category."""
    drawn = []
    for number, talk in enumerate(talks):
        most = count * (number + 1) // len(talks) - count * number // len(talks)
        categories = list(_CATEGORIES)[number % 4 :] + list(_CATEGORIES)[: number % 4]
        by_category = [[each for each in talk.questions if each.category == one] for one in categories]
        for questions in by_category:
            random.Random(number).shuffle(questions)
        in_turn = [questions[i] for i in range(most) for questions in by_category if i < len(questions)]
        drawn.append(Talk(talk.units, in_turn[:most]))
    return drawn


# The score


def split_words(text: str) -> list[str]:
    """Return the stemmed words of an answer, without articles and punctuation."""
    plain = "".join(c for c in text.lower().replace(",", "") if c not in string.punctuation)
    return [stem(word) for word in plain.split() if word not in ("a", "an", "the", "and")]


def score_part(answer: str, expected: str) -> float:
    """Return the F1 of an answer: the harmonic mean of the shares of words that are right and that are there."""
    given, wanted = Counter(split_words(answer)), Counter(split_words(expected))
    shared = (given & wanted).total()
    return 2 * shared / (given.total() + wanted.total()) if shared else 0.0


def score(question: Question, answer: str) -> float:
    """Return the score of an answer, from 0 to 1."""
    if question.category == _SEVERAL_PARTS:
        wanted = [each for each in question.answer.split(",") if each.strip()]
        given = answer.split(",")
        return sum(max(score_part(one, each) for one in given) for each in wanted) / len(wanted)
    return score_part(answer, question.answer.partition(";")[0])


# The answers


class Answers:
    """A provider that asks another one only what it has not answered before. The answers are kept in a file."""

    def __init__(self, provider: Provider, path: Path) -> None:
        self._provider = provider
        self._path = path
        text = path.read_text("utf-8") if path.exists() else ""
        whole, _, begun = text.rpartition("\n")
        if begun:  # a run was killed while it wrote this line
            path.write_text(f"{whole}\n" if whole else "", "utf-8")
        kept = [json.loads(line) for line in whole.splitlines()]
        self._kept: dict[str, str] = {each["request"]: each["answer"] for each in kept}
        self.label = provider.label
        self.model = provider.model
        self.account = provider.account
        self.wire = provider.wire
        # No model takes notes, so that all policies are asked for nothing but the answer.
        self.capabilities = msgspec.structs.replace(provider.capabilities, cards="none")
        self.defaults: Mapping[str, Any] = provider.defaults

    def send(self, body: bytes) -> bytes:
        named = name_speakers(body)
        digest = hashlib.sha256(self.label.encode() + b"\n" + named).hexdigest()
        if digest not in self._kept:
            self._kept[digest] = self._provider.send(named).decode()
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"request": digest, "answer": self._kept[digest]}) + "\n")
        return self._kept[digest].encode()

    def stream(self, body: bytes) -> Any:
        raise NotImplementedError("No answer is streamed here.")

    def close(self) -> None:
        self._provider.close()


def name_speakers(body: bytes) -> bytes:
    """Return a request with each speaker's name in the text, because the templates of local models leave names out."""
    request = json.loads(body)
    for message in request["messages"]:
        if name := message.pop("name", ""):
            message["content"] = f"{name}: {message['content']}"
    return json_bytes.encode(request)


def ask_all(talks: Sequence[Talk], store: Store, provider: Provider, way: str) -> Iterator[tuple[Question, str, Usage]]:
    """Yield all questions with their answers, conversation by conversation, so that the model's cache is of use."""
    given: dict[str, Any] = {"counter": Characters(), "options": {"max_tokens": 40, "temperature": 0}}
    for number, talk in enumerate(talks):
        if way in POLICIES:
            with Conversation(str(number), model=provider, store=store, policy=POLICIES[way], **given) as conversation:
                for question in talk.questions:
                    stored = conversation.fork().send(render_question(question), system=SYSTEM)
                    yield question, stored.text, stored.usage
            continue
        with Chat(provider, **given) as chat:
            for question in talk.questions:
                evidence = render_evidence(question) if way == "the evidence" else ""
                reply = chat.send(evidence + render_question(question), system=SYSTEM)
                yield question, reply.text, reply.usage


def render_question(question: Question) -> str:
    """Return the message that asks a question."""
    return f"{question.text} Answer in a few words."


def render_evidence(question: Question) -> str:
    """Return the messages that answer a question, with their dates and speakers."""
    units = sorted(question.evidence, key=lambda unit: unit.position)
    return "".join(f"{render_date(unit.at)}{unit.name}: {unit.text}\n" for unit in units) + "\n"


# The report


def print_results(results: Mapping[str, Result]) -> None:
    """Print a line for each way to answer."""
    found = registry.find(PRICED)
    prices = found.prices if found is not None else None
    print(
        f"{'':24}{'F1':>7}  ± error"
        + "".join(f"{name:>12}" for name in _CATEGORIES.values())
        + "   tokens  cached  dollars"
    )
    for way, result in results.items():
        scores = [each for scores in result.scores.values() for each in scores]
        mean = sum(scores) / len(scores)
        error = math.sqrt(sum((each - mean) ** 2 for each in scores) / max(1, len(scores) - 1) / len(scores))
        row = [f"{100 * sum(each) / len(each):12.1f}" if each else f"{'-':>12}" for each in result.scores.values()]
        usages = result.usages
        tokens = sum(usage.input for usage in usages) / len(usages)
        cached = sum(usage.cached for usage in usages) / sum(usage.input for usage in usages)
        costs = [cost(usage, prices) for usage in usages]
        dollars = sum(each.total for each in costs if each is not None) * 1_000 / len(usages)
        print(
            f"{way:24}{100 * mean:7.1f}  ±{100 * error:5.1f}"
            + "".join(row)
            + f"{tokens:9,.0f}{cached:8.0%}{dollars:9.3f}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask the questions, and print the scores beside the tokens and the cost."""
    parser = argparse.ArgumentParser(description="How well a local model answers from the context that policies send.")
    parser.add_argument("path", nargs="?", type=Path, help="a LoCoMo file (.json)")
    parser.add_argument("--limit", type=int, default=40, help="the number of questions; default: 40")
    parser.add_argument("--model", default=MODEL, help="the local model; default: 1.5b")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS, help="the ways to answer; default: all")
    parser.add_argument("--answers", type=Path, default=Path("build/answers.jsonl"), help="the file of given answers")
    given = parser.parse_args(arguments)
    results: dict[str, Result] = {}
    missing = find_missing(given.model)
    if given.path is None:
        print("No data. Pass a LoCoMo file.")
    elif missing is not None:
        print(f"No weights. `longtalk ask -m local:{given.model} Hello` downloads them.")
    else:
        talks = draw_questions([parse_talk(each) for each in json.loads(given.path.read_text("utf-8"))], given.limit)
        given.answers.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            local = connect(f"local:{given.model}")
            results = measure(talks, Path(folder), Answers(local, given.answers), given.ways)
            local.close()
        print_results(results)
    goals = make_goals(results)
    print(json.dumps({"bench": "answers", "goals": goals}))


def measure(talks: Sequence[Talk], folder: Path, provider: Provider, ways: Sequence[str]) -> dict[str, Result]:
    """Ask all questions in each of these ways, and return the results."""
    results = {}
    store = SQLite(folder / "talks.db")
    for number, talk in enumerate(talks):
        part = BranchPart(name=MAIN, entries=make_entries(talk.units))
        import_exports(store, "", [ConversationExport(id=str(number), branches=(part,))])
    for way in ways:
        result = results[way] = Result()
        for question, answer, usage in ask_all(talks, store, provider, way):
            result.scores[question.category].append(score(question, answer))
            result.usages.append(usage)
        print(f"{way}: {len(result.usages)} questions answered", flush=True)
    store.close()
    return results


def make_goals(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Return the goal that recall answers at least as well as the same number of tokens of the last messages."""
    means = {way: 100 * sum(map(sum, each.scores.values())) / len(each.usages) for way, each in results.items()}
    if not {"Memory with recall", "the last messages"} <= means.keys():
        return []
    value, goal = round(means["Memory with recall"], 1), round(means["the last messages"], 1)
    return [{"name": "F1, Memory with recall", "value": value, "goal": goal, "met": value >= goal}]


if __name__ == "__main__":
    main()

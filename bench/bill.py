"""What each policy costs, relative to an optimum found in hindsight: `python -m bench.bill [PATH …] [--limit N]`.

A PATH is a JSON list of `{"traj": [OpenAI chat messages]}` (τ-bench) or of LoCoMo's conversations, or JSONL with
`{"messages": […]}` (BEAM). Without a PATH, conversations of three such kinds are generated, the same ones in every run.
`longtalk.simulation` composes each request as a chat would, and compares its bytes with earlier requests to find what
the provider reads from its cache. The figures are the cost of requests and summaries, as a ratio to the optimum.
Answers cost the same under any policy and are left out, except for memory cards.

LoCoMo's conversations last for months. They are simulated twice: as if all turns followed each other within minutes,
and by their own clock, with an empty cache at the start of each session.

Receipts compare the predicted and the actual cost of an epoch. For them, the provider counts with a real tokenizer of
another family than the estimate, and summaries have half to all of the requested length.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.traces import generate_conversations, split_system
from longtalk.policies import Economy, KeepAll, KeepLast, Memory, Policy, Summarize
from longtalk.simulation.compare import OPTIMUM, SimulatedRun, placeholder_summary, simulate
from longtalk.testing.policies import transcript_of
from longtalk.tokens import Counter, Exact
from longtalk.transcript.transcript import Transcript

MODELS = (
    "anthropic:claude-fable-5-1",
    "anthropic:claude-sonnet-5",
    "groq:openai/gpt-oss-120b",
    "groq:qwen/qwen3.8-27b",
)
POLICIES: dict[str, Policy] = {
    "replay, cached": KeepAll(),
    "last 10, sliding": KeepLast(10, sliding=True),
    "summary over 40,000": Summarize(40_000),
    "summary over 8,000": Summarize(8_000),
    "summary over 4,000": Summarize(4_000),
    "Economy": Economy(),
    "Memory, no recall": Memory(recall=0),
    "Memory": Memory(),
}
MEMORY_POLICIES = ("Memory, no recall", "Memory")
MINUTE = 60_000
OWN_CLOCK = ", own clock"
"""The end of the name of a kind whose conversations keep their own times."""

Message = dict[str, Any]
Conversation = tuple[str | None, list[Message], list[int]]
"""The system text, the messages, and their times; no times if the messages followed each other within minutes."""


# Conversations


def read_kinds(path: Path) -> list[tuple[str, list[Conversation]]]:
    """Return the kinds of conversations in a file, each with its name and its conversations."""
    text = path.read_text()
    if path.suffix == ".jsonl":
        rows = [json.loads(line)["messages"] for line in text.splitlines()]
        talks = [[{"role": row["role"], "content": row["content"]} for row in each] for each in rows]
        return [(path.stem, [(None, talk, []) for talk in talks])]
    rows = json.loads(text)
    if "traj" in rows[0]:
        return [(path.stem, [(*split_system(row["traj"]), []) for row in rows])]
    dialogues = [_parse_locomo(row["conversation"]) for row in rows]
    within_minutes: list[Conversation] = [(None, messages, []) for messages, _ in dialogues]
    return [(path.stem, within_minutes), (path.stem + OWN_CLOCK, [(None, *each) for each in dialogues])]


def _parse_locomo(talk: dict[str, Any]) -> tuple[list[Message], list[int]]:
    """Return the messages and times of a dialogue of two people, as user and model. Texts in a row are joined."""
    messages: list[Message] = []
    times: list[int] = []
    for number in range(1, 100):
        if f"session_{number}" not in talk:
            continue
        when = dt.datetime.strptime(talk[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y")
        at = round(when.replace(tzinfo=dt.UTC).timestamp() * 1000)
        for turn in talk[f"session_{number}"]:
            at += MINUTE
            role = "user" if turn["speaker"] == talk["speaker_a"] else "assistant"
            if messages and messages[-1]["role"] == role:
                messages[-1]["content"] += "\n" + turn["text"]
            elif messages or role == "user":
                messages.append({"role": role, "content": turn["text"]})
                times.append(at)
    return messages, times


def generate_kinds() -> list[tuple[str, list[Conversation]]]:
    """Return generated conversations: with long answers, with short messages, and with tools."""
    talks = [_generate_talk(random.Random(seed), 80, (20, 120), (150, 900)) for seed in range(3)]
    chats = [_generate_talk(random.Random(seed), 200, (5, 60), (5, 60)) for seed in range(3)]
    return [
        ("long answers", [(None, each, []) for each in talks]),
        ("short messages", [(None, each, []) for each in chats]),
        ("agent", [(*split_system(each), []) for each in generate_conversations(20)]),
    ]


def _generate_talk(source: random.Random, turns: int, asked: tuple[int, int], said: tuple[int, int]) -> list[Message]:
    words = "the bow sings when the arm is heavy and slow near its bridge".split()  # noqa: SIM905
    texts = [" ".join(source.choices(words, k=source.randint(*size))) for _ in range(turns) for size in (asked, said)]
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def make_transcript(messages: Sequence[Message], times: Sequence[int]) -> Transcript:
    """Return the messages as a transcript, with their times if given."""
    transcript = transcript_of([json.dumps(message).encode() for message in messages])
    if not times:
        return transcript
    entries = [msgspec.structs.replace(entry, at=at) for entry, at in zip(transcript, times, strict=True)]
    return Transcript(fresh=tuple(entries))


# Costs


def run_policies(
    conversations: Sequence[Conversation],
    policies: dict[str, Policy],
    *,
    reports: Counter | None = None,
    summary: Callable[[int, int, Counter], str] = placeholder_summary,
    optimum: bool = True,
) -> Iterator[list[SimulatedRun]]:
    """Yield the simulated runs of each conversation, under each policy, with each model."""
    names = {repr(policy): name for name, policy in policies.items()}
    for system, messages, times in conversations:
        transcript = make_transcript(messages, times)
        if not any(entry.role == "assistant" for entry in list(transcript)[1:]):
            continue
        runs = simulate(
            transcript,
            models=MODELS,
            policies=policies.values(),
            system=system,
            reports=reports,
            summary=summary,
            optimum=optimum,
        )
        yield [msgspec.structs.replace(run, policy=names.get(run.policy, run.policy)) for run in runs]


def compute_ratios(results: Sequence[list[SimulatedRun]]) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    """Return the cost ratios to the optimum by policy and model, and the worst ratio of each policy."""
    totals: dict[tuple[str, str], float] = {}
    worst: dict[str, float] = {}
    for runs in results:
        best = {run.model: run.weight for run in runs if run.policy == OPTIMUM}
        for run in runs:
            key = (run.policy, run.model)
            totals[key] = totals.get(key, 0.0) + run.weight
            worst[run.policy] = max(worst.get(run.policy, 0.0), run.weight / best[run.model])
    return {(policy, model): cost / totals[OPTIMUM, model] for (policy, model), cost in totals.items()}, worst


def write_shorter_summary(length: int, number: int, counter: Counter) -> str:
    """Return a summary of half to all of the allowed length, as models write them."""
    return placeholder_summary(round(length * random.Random(number).uniform(0.5, 1.0)), number, counter)


class Ratios(msgspec.Struct):
    """The cost ratios of one policy, over kinds of conversations and models."""

    all_kinds: list[float] = []
    """Relative to the optimum, except by a conversation's own clock."""
    without_tools: list[float] = []
    """Those of `all_kinds` that are from conversations without tools."""
    replay: list[float] = []
    """Relative to sending everything from the cache, in conversations with tools."""


def measure_receipts(conversations: Sequence[Conversation]) -> Iterator[float]:
    """Yield the relative error of each predicted cost of an epoch."""
    policies: dict[str, Policy] = {"Economy": Economy()}
    for runs in run_policies(
        conversations, policies, reports=Exact("cl100k"), summary=write_shorter_summary, optimum=False
    ):
        for receipt in (receipt for run in runs for receipt in run.receipts):
            if receipt.actual:
                yield abs(receipt.predicted / receipt.actual - 1)


def measure_kind(kind: str, conversations: Sequence[Conversation], measured: dict[str, Ratios]) -> None:
    """Print the ratios of one kind of conversations, and add them to `measured`, by policy."""
    results = list(run_policies(conversations, POLICIES))
    table, worst = compute_ratios(results)
    calls = sum(not call.summary for runs in results for call in runs[0].calls)
    print(f"\n{kind}: {len(results)} conversations, {calls / max(1, len(results)):.0f} calls each")
    tools = any(message["role"] == "tool" for _, messages, _ in conversations for message in messages)
    for name in POLICIES:
        row = [table[name, model] for model in MODELS]
        print(f"  {name:22}" + "".join(f"{ratio:24.3f}" for ratio in row) + f"{worst[name]:12.3f}")
        ratios = measured[name]
        if not kind.endswith(OWN_CLOCK):
            ratios.all_kinds += row
            ratios.without_tools += [] if tools else row
        if tools:
            ratios.replay += [ratio / table["replay, cached", model] for ratio, model in zip(row, MODELS, strict=True)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its figures and goals."""
    parser = argparse.ArgumentParser(description="What each policy costs, relative to an optimum found in hindsight.")
    parser.add_argument("paths", nargs="*", type=Path, help="conversations; without any, generated ones")
    parser.add_argument("--limit", type=int, help="use at most this many of each kind")
    given = parser.parse_args(arguments)
    kinds = [kind for path in given.paths for kind in read_kinds(path)] if given.paths else generate_kinds()
    measured = {name: Ratios() for name in POLICIES}
    errors: list[float] = []
    print("Cost as a ratio to the optimum.\n")
    print(f"{'':24}" + "".join(f"{model.partition(':')[2][:22]:>24}" for model in MODELS) + f"{'worst talk':>12}")
    for kind, conversations in kinds:
        some = conversations[: given.limit]
        measure_kind(kind, some, measured)
        errors += measure_receipts(some)
    median = statistics.median(errors) if errors else 0.0
    print(f"\n{len(errors):,} receipts: the median error of the predicted cost of an epoch is {median:.1%}.")
    economy = measured["Economy"]
    figures = [
        ("Economy against the optimum, average", statistics.mean(economy.all_kinds), 1.05),
        ("Economy against the optimum, worst", max(economy.all_kinds), 1.10),
        ("receipts, median error", median, 0.10),
    ]
    if economy.replay:
        figures.append(("Economy against cached replay, with tools, worst", max(economy.replay), 1.02))
    for name in MEMORY_POLICIES:
        ratios = measured[name]
        figures.append((f"{name} against the optimum, worst", max(ratios.all_kinds), 1.05))
        if ratios.without_tools:
            average = statistics.mean(ratios.without_tools)
            figures.append((f"{name} against the optimum, long talks, average", average, 0.90))
        if ratios.replay:
            figures.append((f"{name} against cached replay, with tools, worst", max(ratios.replay), 1.00))
    goals = [
        {"name": name, "value": round(value, 4), "goal": goal, "met": value <= goal} for name, value, goal in figures
    ]
    print(json.dumps({"bench": "bill", "goals": goals}))


if __name__ == "__main__":
    main()

"""What each policy costs, against an optimum that knows the future: `python -m bench.bill [PATH …] [--limit N]`.

A PATH is a JSON list of `{"traj": [OpenAI chat messages]}` (as tau-bench writes them) or of LoCoMo's conversations, or
JSONL with `{"messages": […]}` (as BEAM has them). Without a PATH, conversations of three such kinds are generated, the
same ones in every run. Each runs in `longtalk.simulation`: requests come from `compose()`, and comparing their bytes
shows what is read from the cache. The figures are the cost of requests and summaries, as a ratio to the optimum.
Answers cost the same under any policy and are left out, except for memory cards.

LoCoMo's conversations last for months. They run as if all turns followed within minutes, and once more by their own
clock, with a cold cache at the start of each session.

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

from bench.traces import made_up, split
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
REMEMBERS = ("Memory, no recall", "Memory")
MINUTE = 60_000

Message = dict[str, Any]
Conversation = tuple[str | None, list[Message], list[int]]
"""System text, messages, and the time of each; no times if they followed within minutes."""


# Where conversations come from


def read(path: Path) -> list[tuple[str, list[Conversation]]]:
    """Return the conversations of a file, by kind."""
    text = path.read_text()
    if path.suffix == ".jsonl":
        rows = [json.loads(line)["messages"] for line in text.splitlines()]
        said = [[{"role": row["role"], "content": row["content"]} for row in each] for each in rows]
        return [(path.stem, [(None, each, []) for each in said])]
    rows = json.loads(text)
    if "traj" in rows[0]:
        return [(path.stem, [(*split(row["traj"]), []) for row in rows])]
    found = [_locomo(row["conversation"]) for row in rows]
    within_minutes: list[Conversation] = [(None, said, []) for said, _ in found]
    return [(path.stem, within_minutes), (f"{path.stem}, own clock", [(None, *each) for each in found])]


def _locomo(talk: dict[str, Any]) -> tuple[list[Message], list[int]]:
    """Return a dialogue of two people as user and model, with consecutive texts of one person joined."""
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


def synthetic() -> list[tuple[str, list[Conversation]]]:
    """Return generated conversations: with long answers, with short messages, and with tools."""
    talks = [_talk(random.Random(seed), 80, (20, 120), (150, 900)) for seed in range(3)]
    chats = [_talk(random.Random(seed), 200, (5, 60), (5, 60)) for seed in range(3)]
    return [
        ("long answers", [(None, each, []) for each in talks]),
        ("short messages", [(None, each, []) for each in chats]),
        ("agent", [(*split(each), []) for each in made_up(20)]),
    ]


def _talk(source: random.Random, turns: int, asked: tuple[int, int], said: tuple[int, int]) -> list[Message]:
    words = "the bow sings when the arm is heavy and slow near its bridge".split()  # noqa: SIM905
    texts = [" ".join(source.choices(words, k=source.randint(*size))) for _ in range(turns) for size in (asked, said)]
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def transcript(messages: Sequence[Message], times: Sequence[int]) -> Transcript:
    """Return the messages as a transcript, with their times if given."""
    made = transcript_of([json.dumps(message).encode() for message in messages])
    if not times:
        return made
    entries = [msgspec.structs.replace(entry, at=at) for entry, at in zip(made, times, strict=True)]
    return Transcript(fresh=tuple(entries))


# What they cost


def play(
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
        said = transcript(messages, times)
        if not any(entry.role == "assistant" for entry in list(said)[1:]):
            continue
        plays = simulate(
            said,
            models=MODELS,
            policies=policies.values(),
            system=system,
            reports=reports,
            summary=summary,
            optimum=optimum,
        )
        yield [msgspec.structs.replace(each, policy=names.get(each.policy, each.policy)) for each in plays]


def ratios(played: Sequence[list[SimulatedRun]]) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    """Return the cost ratios to the optimum by policy and model, and the worst ratio of each policy."""
    totals: dict[tuple[str, str], float] = {}
    worst: dict[str, float] = {}
    for plays in played:
        best = {each.model: each.weight for each in plays if each.policy == OPTIMUM}
        for each in plays:
            key = (each.policy, each.model)
            totals[key] = totals.get(key, 0.0) + each.weight
            worst[each.policy] = max(worst.get(each.policy, 0.0), each.weight / best[each.model])
    return {(policy, model): cost / totals[OPTIMUM, model] for (policy, model), cost in totals.items()}, worst


def shorter(length: int, number: int, counter: Counter) -> str:
    """Return a summary that is shorter than allowed, as models write them."""
    return placeholder_summary(round(length * random.Random(number).uniform(0.5, 1.0)), number, counter)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its figures and goals."""
    parser = argparse.ArgumentParser(description="What each policy costs, against an optimum that knows the future.")
    parser.add_argument("paths", nargs="*", type=Path, help="conversations; without any, made-up ones")
    parser.add_argument("--limit", type=int, help="use at most this many of each kind")
    given = parser.parse_args(arguments)
    kinds = [kind for path in given.paths for kind in read(path)] if given.paths else synthetic()
    found: dict[str, float] = {}
    errors: list[float] = []
    replay: list[float] = []
    kept: dict[str, tuple[list[float], list[float], list[float]]] = {name: ([], [], []) for name in REMEMBERS}
    """Of each memory: against the optimum in long talks, in all, and against replay where there are tools."""
    print("Cost as a ratio to the optimum.\n")
    print(f"{'':24}" + "".join(f"{model.partition(':')[2][:22]:>24}" for model in MODELS) + f"{'worst talk':>12}")
    for kind, conversations in kinds:
        some = conversations[: given.limit]
        played = list(play(some, POLICIES))
        table, worst = ratios(played)
        calls = sum(not call.summary for plays in played for call in plays[0].calls)
        print(f"\n{kind}: {len(played)} conversations, {calls / max(1, len(played)):.0f} calls each")
        for name in POLICIES:
            row = [table[name, model] for model in MODELS]
            print(f"  {name:22}" + "".join(f"{ratio:24.3f}" for ratio in row) + f"{worst[name]:12.3f}")
        tools = any(message["role"] == "tool" for _, messages, _ in some for message in messages)
        if not kind.endswith("own clock"):
            found |= {f"{kind} {model}": table["Economy", model] for model in MODELS}
            for name, (talks, everywhere, _) in kept.items():
                everywhere += [table[name, model] for model in MODELS]
                talks += [] if tools else [table[name, model] for model in MODELS]
        if tools:
            replay += [table["Economy", model] / table["replay, cached", model] for model in MODELS]
            for name, (_, _, against) in kept.items():
                against += [table[name, model] / table["replay, cached", model] for model in MODELS]
        for plays in play(some, {"Economy": Economy()}, reports=Exact("cl100k"), summary=shorter, optimum=False):
            receipts = [receipt for each in plays for receipt in each.receipts if receipt.actual]
            errors += [abs(receipt.predicted / receipt.actual - 1) for receipt in receipts if receipt.actual]
    median = statistics.median(errors) if errors else 0.0
    print(f"\n{len(errors):,} receipts: what an epoch costs was predicted with a median error of {median:.1%}.")
    average, most = statistics.mean(found.values()), max(found.values())
    measured = [
        ("Economy against the optimum, average", average, 1.05),
        ("Economy against the optimum, worst", most, 1.10),
        ("receipts, median error", median, 0.10),
    ]
    if replay:
        measured.append(("Economy against cached replay, with tools, worst", max(replay), 1.02))
    for name, (talks, everywhere, against) in kept.items():
        measured.append((f"{name} against the optimum, worst", max(everywhere), 1.05))
        if talks:
            measured.append((f"{name} against the optimum, long talks, average", statistics.mean(talks), 0.95))
        if against:
            measured.append((f"{name} against cached replay, with tools, worst", max(against), 1.02))
    goals = [
        {"name": name, "value": round(value, 4), "goal": goal, "met": value <= goal} for name, value, goal in measured
    ]
    print(json.dumps({"bench": "bill", "goals": goals}))


if __name__ == "__main__":
    main()

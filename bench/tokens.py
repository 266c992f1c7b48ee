"""The error of the token estimates, compared with real tokenizers.

    python -m bench.tokens [FILES…]

*Alone* estimates texts by class (bench/samples, which the weights were not fitted on), cut into pieces of the size of
messages. *Anchored* estimates whole prompts as a chat does: the provider has reported the tokens of the last request,
and only what was added since (its answer, tool results, the next message) is estimated. The conversations are made of
the samples, or given as files: BEAM (JSONL), LoCoMo or τ-bench (JSON).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from longtalk.context.epochs import Anchor
from longtalk.tokens import EXACT, Counter, Estimator, Exact, count_message
from longtalk.tokens.counters import _load_tokenizer

SAMPLES = Path(__file__).parent / "samples"
SIZES = (200, 600, 2_000, 4_000)
ALONE, ANCHORED, WORST = 7.0, 1.0, 2.0
SYSTEM = "You are a patient assistant. Answer in the language of the user, and look things up before you guess."


class CharactersByFour:
    """The usual rough estimate: characters / 4."""

    def count(self, text: str) -> int:
        return len(text) // 4


def split_into_pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces of the size of messages, cut between words where possible."""
    for size in SIZES:
        start = 0
        while len(text) - start >= size * 0.75:
            end = text.rfind(" ", start + size // 2, start + size) if start + size < len(text) else len(text)
            end = end if end > 0 else start + size
            yield text[start:end]
            start = end


def mean_error(counter: Counter, exact: Counter, texts: list[str]) -> float:
    """Return the mean relative error in percent."""
    return 100 * mean(abs(counter.count(text) / exact.count(text) - 1) for text in texts)


def generate_conversations(samples: dict[str, str]) -> Iterator[tuple[str, list[Any]]]:
    """Yield conversations made of the samples: one for each class, and a long one with all of them."""
    everything: list[Any] = [{"role": "system", "content": SYSTEM}]
    for name, text in samples.items():
        spoken: list[Any] = [{"role": "system", "content": SYSTEM}]
        for i, said in enumerate(text.split("\n\n" if "\n\n" in text else "\n")):
            if name == "json":
                call = {"name": "look_up", "arguments": json.dumps({"query": said[:40], "limit": i})}
                calls = [{"id": f"call_{i}", "type": "function", "function": call}]
                spoken.append({"role": "assistant", "content": None, "tool_calls": calls})
                spoken.append({"role": "tool", "tool_call_id": f"call_{i}", "content": said})
            else:
                spoken.append({"role": "assistant" if i % 2 else "user", "content": said})
        everything += spoken[1:]
        yield name, spoken
    yield "all", everything


def read_conversations(path: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield the conversations of a file as messages."""
    name = Path(path).stem
    content = Path(path).read_text()
    if path.endswith(".jsonl"):
        for line in content.splitlines():
            yield name, [{"role": m["role"], "content": m["content"]} for m in json.loads(line)["messages"]]
        return
    for item in json.loads(content):
        if "traj" in item:
            yield name, item["traj"]
            continue
        held = item["conversation"]
        sessions = sorted((key for key in held if isinstance(held[key], list)), key=lambda key: int(key.split("_")[1]))
        yield (
            name,
            [
                {"role": "user" if said["speaker"] == held["speaker_a"] else "assistant", "content": said["text"]}
                for key in sessions
                for said in held[key]
            ],
        )


def measure_anchored(messages: list[bytes], requests: list[int], counter: Counter, exact: Counter) -> list[float]:
    """Return the relative errors, in percent, of the prompts after the first.

    A request sends all messages before it. As in a chat, the reported size of the last request is exact; what came
    since is estimated, and scaled by the error of the estimate for the last request.
    """
    true = [count_message(message, exact) for message in messages]
    rough = [count_message(message, counter) for message in messages]
    errors = []
    for old, new in pairwise(requests):
        scale = Anchor(0, "", "", counted=sum(rough[:old]), reported=sum(true[:old])).scale
        errors.append(100 * abs(scale * sum(rough[old:new]) - sum(true[old:new])) / sum(true[:new]))
    return errors


def percentile(values: list[float], share: float) -> float:
    """Return the value below which this share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def measure_cpu(counters: list[Counter], texts: list[str]) -> float:
    """Return the least CPU time for these texts. A tokenizer caches words, so it is slower on new texts."""
    best = float("inf")
    for counter in counters:
        start = time.process_time()
        for text in texts:
            counter.count(text)
        best = min(best, time.process_time() - start)
    return best


def load_tokenizer(texts: list[str]) -> Exact:
    """Return a tokenizer whose cache holds only the words of these texts."""
    _load_tokenizer.cache_clear()
    made = Exact("o200k")
    for text in texts:
        made.count(text)
    return made


def print_table(title: str, rows: dict[str, list[float]], heads: list[str]) -> None:
    """Print a table with a title and column heads."""
    print(f"\n{title}\n\n{'':12}{''.join(f'{head:>10}' for head in heads)}")
    for name, values in rows.items():
        print(f"{name:12}{''.join(f'{value:10.1f}' for value in values)}")


def main() -> None:
    """Run the benchmark and print its figures and goals."""
    samples = {path.stem: path.read_text() for path in sorted(SAMPLES.glob("*.txt"))}
    exact = {family: Exact(family) for family in EXACT}
    rough = {family: Estimator(family) for family in EXACT}
    heads = [*EXACT, "mean", "len/4"]
    rows: dict[str, list[float]] = {}
    whole: dict[str, list[float]] = {}
    for name, text in samples.items():
        for into, texts in ((rows, list(split_into_pieces(text))), (whole, [text])):
            errors = [mean_error(rough[family], exact[family], texts) for family in EXACT]
            into[name] = [
                *errors,
                mean(errors),
                mean(mean_error(CharactersByFour(), counter, texts) for counter in exact.values()),
            ]
    rows["mean"] = [mean(column) for column in zip(*rows.values(), strict=True)]
    print_table("Alone, on pieces of the size of messages: mean error in percent.", rows, heads)
    print_table("Alone, on each class as a whole.", whole, heads)

    found: dict[str, dict[str, list[float]]] = {}
    floor: dict[str, list[float]] = {}
    talks = [talk for path in sys.argv[1:] for talk in read_conversations(path)] or list(
        generate_conversations(samples)
    )
    for name, spoken in talks:
        messages = [json.dumps(message, ensure_ascii=False).encode() for message in spoken]
        requests = [i for i, message in enumerate(spoken) if message["role"] == "assistant" and i]
        for family in EXACT:
            errors = measure_anchored(messages, requests, rough[family], exact[family])
            found.setdefault(name, {}).setdefault(family, []).extend(errors)
        floor.setdefault(name, []).extend(measure_anchored(messages, requests, CharactersByFour(), exact["o200k"]))
    every = [error for families in found.values() for errors in families.values() for error in errors]
    shown = {}
    for name, families in found.items():
        shown[name] = [*(mean(errors) for errors in families.values()), mean(map(mean, families.values()))]
        shown[name].append(mean(floor[name]))
        worst = [percentile(errors, 0.95) for errors in families.values()]
        shown[f"{name} p95"] = [*worst, mean(worst), percentile(floor[name], 0.95)]
    print_table("Anchored, on whole prompts: mean error in percent, and the 95th percentile.", shown, heads)

    known = [text[: len(text) // 2] for text in samples.values()]
    texts = [piece for text in samples.values() for piece in split_into_pieces(text[len(text) // 2 :])]
    size = sum(map(len, texts))
    spent = {
        "estimator": measure_cpu([rough["o200k"]] * 7, texts),
        "exact, new text": measure_cpu([load_tokenizer(known) for _ in range(3)], texts),
        "exact, known text": measure_cpu([exact["o200k"]] * 7, texts),
    }
    print(f"\n{'':20}{'µs per 1,000 characters':>26}{'times':>8}")
    for name, seconds in spent.items():
        print(f"{name:20}{1e9 * seconds / size:26.1f}{seconds / spent['estimator']:8.2f}")

    alone, average, worst_of_all = rows["mean"][-2], mean(every), percentile(every, 0.95)
    figures = {
        "mean error alone, percent": (alone, ALONE),
        "mean error anchored, percent": (average, ANCHORED),
        "error anchored, 95th percentile, percent": (worst_of_all, WORST),
    }
    goals = [
        {"name": name, "value": round(value, 2), "goal": goal, "met": value <= goal}
        for name, (value, goal) in figures.items()
    ]
    print(json.dumps({"bench": "tokens", "goals": goals}))


if __name__ == "__main__":
    main()

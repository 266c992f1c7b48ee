"""A conversation of thousands of turns under `Memory`: size of requests, CPU per turn, and facts that are recalled.

`python -m bench.months [--turns N]` runs a model that answers with random words, and with a memory card when it is
asked for one. The conversation is in a SQLite file. Some messages state facts, which are asked for at the end: after
the file was closed and opened again, and once more on another wire. A fact counts if its words are in the request.

The CPU time of a turn includes reading and writing the store, composing and recalling. The memory is that of the
process, without its share of files.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from longtalk import Conversation
from longtalk.policies import Memory
from longtalk.providers.scripted.script import Step
from longtalk.reply import StoredReply
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import Scripted, says
from longtalk.wires import WIRES

FACTS = {
    1: ("My teacher's name is Leontine Abegg.", "What is the name of my teacher?", "Leontine Abegg"),
    50: ("I keep the spare bow in the blue wardrobe.", "Where do I keep the spare bow?", "blue wardrobe"),
    500: ("My sister Pernille plays the bassoon.", "Which instrument does my sister play?", "bassoon"),
    2_500: ("The luthier wants 740 francs for the repair.", "How much does the luthier want?", "740 francs"),
}
SYSTEM = "You teach the violin."
MARKS = (1_000, 2_500, 5_000, 10_000, 20_000)
"""The turns after which the CPU time, the memory and the size on disk are printed."""
MAX_BYTES_PER_TURN = 8_000
"""The goal for what a turn adds to the memory of the process after turn 1,000."""
COMPARED_TURNS = 250
"""The number of early turns and of last turns that are compared."""


class RandomModel(Scripted):
    """A model that answers with random words, and with a card when asked."""

    def __init__(self, words: Sequence[str], wire: str = "openai-chat") -> None:
        super().__init__(wire=WIRES[wire])
        self._words = words
        self._random = random.Random(7)
        self.last = b""

    def _take_step(self, body: bytes) -> Step:
        self.last = body
        text = f"Well, {' '.join(self._random.choices(self._words, k=40))}."
        if b"End your answer with a note of" in body:
            facts = [" ".join(self._random.choices(self._words, k=5)) for _ in range(3)]
            text += f"\n<MEMORY_CARD>{json.dumps({'goal': facts[0], '+fact': facts[1:]})}</MEMORY_CARD>"
        return says(text, wire=self.wire.name, usage=_usage(self.wire.name, len(body) // 4))


def _usage(wire: str, tokens: int) -> dict[str, int]:
    if wire == "openai-chat":
        return {"prompt_tokens": tokens, "completion_tokens": 50, "total_tokens": tokens + 50}
    return {"input_tokens": tokens, "output_tokens": 50}


def make_vocabulary() -> list[str]:
    """Return invented words, some of them far more often than others."""
    source = random.Random(3)
    parts = "ba ce di fo gu la me ni po ru sa te vi wo zu".split()  # noqa: SIM905
    words = ["".join(source.choices(parts, k=source.randint(2, 4))) for _ in range(3_000)]
    return [word for i, word in enumerate(words) for _ in range(1 + 300 // (i + 3))]


def run_turns(path: Path, turns: int, policy: Memory) -> Iterator[tuple[float, StoredReply]]:
    """Run the turns, and yield the CPU seconds and the reply of each."""
    words, source = make_vocabulary(), random.Random(5)
    with closing(SQLite(path)) as store:
        conversation = Conversation("months", model=RandomModel(words), store=store, policy=policy)
        for turn in range(1, turns + 1):
            message = f"And what of {' '.join(source.choices(words, k=12))}?"
            message = FACTS[turn][0] if turn in FACTS else message
            begun = time.process_time()
            reply = conversation.send(message, system=SYSTEM)
            yield time.process_time() - begun, reply


def measure_memory() -> float:
    """Return the memory of this process that is no part of a file, in MB."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1_000


def list_recalled_facts(path: Path, policy: Memory, wire: str, turns: int) -> list[str]:
    """Return the facts that are in the request when a message asks for them, each on a new branch."""
    recalled = []
    with closing(SQLite(path)) as store:
        model = RandomModel(make_vocabulary(), wire)
        main = Conversation("months", model=model, store=store, policy=policy)
        for turn, (_, question, fact) in FACTS.items():
            if turn <= turns:
                main.fork().send(question, system=SYSTEM)
                recalled += [fact] if fact in model.last.decode() else []
    return recalled


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its figures and goals."""
    parser = argparse.ArgumentParser(description="A conversation of thousands of turns under Memory.")
    parser.add_argument("--turns", type=int, default=5_000)
    turns = parser.parse_args(arguments).turns
    policy = Memory()
    times: list[float] = []
    memory: dict[int, float] = {}
    cpu: dict[int, float] = {}
    sent, briefs, own = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "months.db"
        for spent, reply in run_turns(path, turns, policy):
            context = reply.context
            assert context is not None
            times.append(1e3 * spent)
            sent.append(context.counted)
            briefs.append(context.brief)
            own.append(reply.entries[0].tokens)
            if len(times) in MARKS:
                memory[len(times)] = measure_memory()
                cpu[len(times)] = statistics.median(times[-COMPARED_TURNS:])
                figures = (len(times), cpu[len(times)], memory[len(times)], path.stat().st_size / 1e6)
                print("after {:6,} turns: {:5.1f} ms a turn, {:4.0f} MB of memory, {:5.1f} MB on disk".format(*figures))
        after_restart = list_recalled_facts(path, policy, "openai-chat", turns)
        on_other_wire = list_recalled_facts(path, policy, "anthropic", turns)
        size = path.stat().st_size
    span = min(COMPARED_TURNS, turns // 3)
    early, late = statistics.median(times[span : 2 * span]), statistics.median(times[-span:])
    bound = 20 + policy.limit + policy.recalls.budget + 100
    most = max(tokens - message for tokens, message in zip(sent, own, strict=True))
    planted = sum(turn <= turns for turn in FACTS)
    print(f"{turns:,} turns, {size / 1e6:.1f} MB on disk. Tokens of a request without the message: at most {most:,}")
    print(f"(bound {bound:,}), on average {statistics.mean(sent):,.0f}; of the brief at most {max(briefs)}.")
    print(f"CPU of a turn, median: {early:.2f} ms in turns {span}–{2 * span}, {late:.2f} ms in the last {span}.")
    print(f"Of {planted} facts, {len(after_restart)} are in the request when a message asks for them after a restart,")
    print(f"and {len(on_other_wire)} on another wire.")
    measured = [
        ("tokens besides the message", most, bound, most <= bound),
        ("tokens of the brief", max(briefs), 200, max(briefs) <= 200),
        ("CPU of a late turn against an early one", round(late / early, 2), 1.25, late <= 1.25 * early),
        ("facts found after a restart", len(after_restart), planted, len(after_restart) == planted),
        ("facts found on another wire", len(on_other_wire), planted, len(on_other_wire) == planted),
    ]
    if MARKS[1] in cpu:
        grown = round(cpu[MARKS[1]] / early, 2)
        measured.append(("CPU of a turn at 5,000 entries against 500", grown, 2, grown <= 2))
    if len(memory) > 1:
        (first, before), (last, after) = min(memory.items()), max(memory.items())
        added = round(1e6 * (after - before) / (last - first))
        measured.append(("bytes of memory that a turn adds", added, MAX_BYTES_PER_TURN, added <= MAX_BYTES_PER_TURN))
    goals = [{"name": name, "value": value, "goal": goal, "met": met} for name, value, goal, met in measured]
    print(json.dumps({"bench": "months", "goals": goals}))


if __name__ == "__main__":
    main()

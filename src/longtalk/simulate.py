"""What a conversation that took place would have cost, under each policy and at each model's prices.

    plays = simulate(transcript_of(archive.talk("lesson-7")), models=["anthropic:claude-sonnet-5"])

The conversation is played again (`replay.py`). Last for each model comes the *optimum*, which knows the future: of all
moments to put a summary in the place of the older exchanges it takes those that cost least in all (`optimum.py`).
Nobody can do better with such summaries, and no policy can know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from longtalk.errors import InputError
from longtalk.optimum import OPTIMUM, at_moments, cheapest
from longtalk.policies import Combine, Economy, KeepAll, KeepLast, Policy, Summarize, TokenBudget
from longtalk.prices import Cost, cost, total
from longtalk.receipts import CostReceipt, Ratios
from longtalk.replay import Asked, Replay, Stage, Table, Trace
from longtalk.stores.base import MAIN
from longtalk.tokens import Counter
from longtalk.transcript import Transcript, Turns
from longtalk.wires.base import Usage

if TYPE_CHECKING:
    from longtalk.portable import Talk

__all__ = ["OPTIMUM", "POLICIES", "Call", "Play", "Table", "simulate", "stand_in", "transcript_of"]

POLICIES: tuple[Policy, ...] = (KeepAll(), KeepLast(10), TokenBudget(8_000), Summarize(8_000), Economy())


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One model call."""

    entry: int
    """The place of the answer; of a summary call, that of the answer after it."""
    turn: str
    """The turn of that answer."""
    usage: Usage
    cost: Cost | None
    """US dollars; None if nobody knows."""
    summary: bool = False
    """Whether it was for a summary."""
    begins: bool = False
    """Whether an epoch begins with it."""
    card: int = 0
    """Tokens of a memory card in the answer."""


class Play(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A conversation under one policy, with one model."""

    policy: str
    """Its `repr`."""
    model: str
    calls: tuple[Call, ...]
    ratios: Ratios
    receipts: tuple[CostReceipt, ...] = ()
    problem: str = ""
    """Why it could not be played to its end."""

    @cached_property
    def usage(self) -> Usage:
        return sum((call.usage for call in self.calls), Usage())

    @cached_property
    def cost(self) -> Cost | None:
        """US dollars for all calls; None if nobody knows, or not all were made."""
        return None if self.problem else total(call.cost for call in self.calls)

    @cached_property
    def weight(self) -> float:
        """What was sent and what summaries and cards took, in tokens sent anew. Answers cost the same otherwise."""
        return sum(
            self.ratios.weigh(call.usage if call.summary else msgspec.structs.replace(call.usage, output=call.card))
            for call in self.calls
        )

    @property
    def prompts(self) -> list[int]:
        """Tokens of each request but those for summaries."""
        return [call.usage.input for call in self.calls if not call.summary]

    @property
    def turns(self) -> int:
        return len({call.turn for call in self.calls})

    @property
    def summaries(self) -> int:
        return sum(call.summary for call in self.calls)

    @property
    def epochs(self) -> int:
        """How often a new epoch began: how often it was compacted."""
        return sum(call.begins for call in self.calls)

    @property
    def cached(self) -> float:
        """The share of what was sent that the provider has read from its cache."""
        return self.usage.cached / max(1, self.usage.input)


def transcript_of(said: Talk | bytes, *, branch: str | None = None) -> Transcript:
    """A branch of a conversation, by default the main one.

    `said` is what `archive.talk(…)` gives, or the content of a file with one conversation that `archive.load` takes: a
    state, an export, messages in OpenAI's chat form.
    """
    from longtalk.portable import Talk, whole
    from longtalk.portable_read import read

    if isinstance(said, bytes):
        talks = read(said)
        if len(talks) != 1:
            raise InputError(f"One conversation is played at a time, and here are {len(talks):,}.")
        said = talks[0]
    if not isinstance(said, Talk):
        raise InputError(f"A conversation is what archive.talk(…) gives, or bytes, not {type(said).__name__}.")
    names = [limb.name for limb in said.limbs]
    limb = whole(said, branch or (MAIN if MAIN in names else next(iter(names), MAIN)))
    return Transcript(fresh=limb.entries, turns=Turns(fresh=limb.turns))


def stand_in(length: int, number: int, counter: Counter) -> str:
    """A text of about so many tokens, another one for each number."""
    words = f"They spoke about plan {number}, what it costs, who does which part of it by when, and what is open. "
    text = words * (1 + length // 15)
    return text[: len(text) * length // max(1, counter.count(text))]


def simulate(
    transcript: Transcript,
    *,
    models: Sequence[str | Table],
    policies: Iterable[Policy] = POLICIES,
    system: str | None = None,
    summary: Callable[[int, int, Counter], str] = stand_in,
    reports: Counter | None = None,
    optimum: bool = True,
) -> list[Play]:
    """Play a conversation under each policy with each model; last, for each model, the optimum.

    `system` is the system text that went with it; a system message at the very beginning is taken for that.
    `summary` makes the text that stands in for a summary, of its length in tokens, a number and a counter. `reports`
    counts what the provider would report, if otherwise than what a chat estimates.
    """
    if not models or isinstance(models, str):
        raise InputError("Name models in a list, each as provider:model: prices are those of a model.")
    if hasattr(policies, "compactors"):
        raise InputError("Give policies in a list, such as [KeepLast(6), Economy()].")
    if not isinstance(transcript, Transcript):
        raise InputError(f"A Transcript is played, as `transcript_of` gives, not {type(transcript).__name__}.")
    policies = Combine(*policies).policies
    trace = Trace(transcript, system)
    plays: list[Play] = []
    same: dict[tuple[object, ...], Replay] = {}
    for model in models:
        table = model if isinstance(model, Table) else Table.of(model)
        stage = Stage(trace, table, summary, reports)
        for policy in policies:
            # What does not go by prices is the same for many models.
            key = (repr(policy), stage.estimated.counter, table.window, table.caches and table.cache_seconds)
            replay = same.get(key) or Replay(stage, _always(policy))
            if not replay.by_price and not replay.problem:
                same[key] = replay
            plays.append(_priced(repr(policy), replay, stage))
        if optimum:
            plays.append(_priced(OPTIMUM, Replay(stage, at_moments(cheapest(stage))), stage))
    return plays


def _always(policy: Policy) -> Callable[[int], Policy]:
    return lambda _: policy


def _priced(name: str, replay: Replay, stage: Stage) -> Play:
    return Play(
        policy=name,
        model=stage.table.label,
        calls=tuple(_call(asked, stage) for asked in replay.asked),
        ratios=stage.table.ratios,
        receipts=replay.receipts,
        problem=replay.problem,
    )


def _call(asked: Asked, stage: Stage) -> Call:
    usage = asked.usage(stage.table)
    return Call(
        entry=stage.trace.first + asked.place,
        turn=stage.trace.entries[asked.place].turn,
        usage=usage,
        cost=cost(usage, stage.table.prices),
        summary=asked.summary,
        begins=asked.begins,
        card=asked.card,
    )

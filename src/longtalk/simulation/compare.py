"""Compute what a recorded conversation would have cost under each policy, at each model's prices.

    runs = simulate(transcript_of(archive.talk("lesson-7")), models=["anthropic:claude-sonnet-5"])

The conversation is replayed with each policy (`replay.py`). The last run for each model is the *optimum*, which knows
the whole conversation in advance: it replaces older exchanges with a summary at the moments that make the total cost
lowest (`optimum.py`). The optimum is a lower bound for the cost with such summaries; a policy, which does not know the
future, can't be expected to reach it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from longtalk.context.costs import CostReceipt, Ratios
from longtalk.errors import InputError
from longtalk.models import registry
from longtalk.models.call_cost import Cost, add_costs, cost
from longtalk.policies import Combine, Economy, KeepAll, KeepLast, Memory, Policy, Summarize, TokenBudget
from longtalk.simulation.inputs import ReplaySetup, SimulatedModel, Trace
from longtalk.simulation.optimum import OPTIMUM, find_cheapest_schedule, schedule_policy
from longtalk.simulation.replay import PolicyReplay, ReplayedCall
from longtalk.stores.base import MAIN
from longtalk.tokens import Counter
from longtalk.transcript.transcript import Transcript, Turns
from longtalk.usage import Usage

if TYPE_CHECKING:
    from longtalk.transfer.conversation_export import ConversationExport

__all__ = [
    "OPTIMUM",
    "POLICIES",
    "SimulatedCall",
    "SimulatedModel",
    "SimulatedRun",
    "choose_models",
    "placeholder_summary",
    "simulate",
    "transcript_of",
]

POLICIES: tuple[Policy, ...] = (KeepAll(), KeepLast(10), TokenBudget(8_000), Summarize(8_000), Economy(), Memory())
_DEFAULT_MODELS = ("anthropic:claude-sonnet-5", "openai-chat:gpt-5.4")
_MOST_MODELS = 3


class SimulatedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One model call of a simulated run."""

    entry: int
    """The position of the answer in the conversation; for a call that makes a summary, that of the next answer."""
    turn: str
    """The id of the turn to which this answer belongs."""
    usage: Usage
    cost: Cost | None
    """The cost in US dollars; None if the model has no prices."""
    summary: bool = False
    """Whether the call makes a summary."""
    begins: bool = False
    """Whether a new epoch begins with this call, because the context was just compacted."""
    card: int = 0
    """The number of tokens of the memory card in the answer; 0 if it has none."""


class SimulatedRun(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The result of simulating a conversation with one policy and one model."""

    policy: str
    """The `repr` of the policy, or "optimum" for the run that makes summaries at the cheapest moments."""
    model: str
    calls: tuple[SimulatedCall, ...]
    ratios: Ratios
    receipts: tuple[CostReceipt, ...] = ()
    problem: str = ""
    """The reason why the run could not be completed; empty if it is complete."""

    @cached_property
    def usage(self) -> Usage:
        """The total usage of all calls."""
        return sum((call.usage for call in self.calls), Usage())

    @cached_property
    def cost(self) -> Cost | None:
        """The cost of all calls in US dollars; None if the cost is unknown or the run could not be completed."""
        return None if self.problem else add_costs(call.cost for call in self.calls)

    @cached_property
    def weight(self) -> float:
        """The cost of requests, summaries and memory cards, in units of one uncached input token.

        The text of the answers is not counted, because it costs the same in every run.
        """
        return sum(
            self.ratios.weigh(call.usage if call.summary else msgspec.structs.replace(call.usage, output=call.card))
            for call in self.calls
        )

    @property
    def prompts(self) -> list[int]:
        """The number of input tokens of each request, except the requests for summaries."""
        return [call.usage.input for call in self.calls if not call.summary]

    @property
    def turns(self) -> int:
        """The number of turns in the run."""
        return len({call.turn for call in self.calls})

    @property
    def summaries(self) -> int:
        """The number of calls that make a summary."""
        return sum(call.summary for call in self.calls)

    @property
    def epochs(self) -> int:
        """The number of times that a new epoch began because the context was compacted."""
        return sum(call.begins for call in self.calls)

    @property
    def cached(self) -> float:
        """The fraction of input tokens that the provider read from its cache."""
        return self.usage.cached / max(1, self.usage.input)


def transcript_of(conversation: ConversationExport | bytes, *, branch: str | None = None) -> Transcript:
    """Return the transcript of one branch of a conversation.

    `conversation` is the result of `archive.talk(…)`, or the content of a file with one conversation in a format that
    `archive.load` accepts: a state, an export, or messages in OpenAI's chat format. `branch` defaults to the main
    branch or, if there is none, to the first branch.
    """
    from longtalk.transfer.conversation_export import ConversationExport, expand_branch
    from longtalk.transfer.read import read

    if isinstance(conversation, bytes):
        talks = read(conversation)
        if len(talks) != 1:
            raise InputError(
                f"Only one conversation can be simulated at a time, but the file contains {len(talks):,}: import "
                "it and choose one."
            )
        conversation = talks[0]
    if not isinstance(conversation, ConversationExport):
        raise InputError(
            f"Pass the result of archive.talk(…), or the content of a file as bytes, not {type(conversation).__name__}."
        )
    names = [part.name for part in conversation.branches]
    part = expand_branch(conversation, branch or (MAIN if MAIN in names else next(iter(names), MAIN)))
    return Transcript(fresh=part.entries, turns=Turns(fresh=part.turns))


def choose_models(transcript: Transcript) -> Sequence[str]:
    """Return the models of a conversation that have known prices, latest first; if it has none, default models."""
    found = []
    for label in dict.fromkeys(turn.model for turn in reversed(transcript.turns) if turn.model):
        # Imported messages may name a model without its provider.
        model = registry.find(label) or registry.find(f"openai-chat:{label}")
        if model is not None and model.prices is not None and model.label not in found:
            found.append(model.label)
    return found[:_MOST_MODELS] or _DEFAULT_MODELS


def placeholder_summary(length: int, number: int, counter: Counter) -> str:
    """Return a filler text of about `length` tokens to use in place of a summary. It differs for each `number`."""
    words = f"They spoke about plan {number}, what it costs, who does which part of it by when, and what is open. "
    text = words * (1 + length // 15)
    return text[: len(text) * length // max(1, counter.count(text))]


def simulate(
    transcript: Transcript,
    *,
    models: Sequence[str | SimulatedModel],
    policies: Iterable[Policy] = POLICIES,
    system: str | None = None,
    summary: Callable[[int, int, Counter], str] = placeholder_summary,
    reports: Counter | None = None,
    optimum: bool = True,
    progress: Callable[[int], None] | None = None,
) -> list[SimulatedRun]:
    """Simulate a conversation with each model and policy, and return the runs, grouped by model.

    With `optimum`, the last run of each model is the optimum. `system` is the system text of the conversation; by
    default it is taken from the system message at the start of the conversation. `summary` is a function like
    `placeholder_summary`. `reports` counts tokens as the provider would report them; by default, the provider is
    assumed to report what a chat would estimate. `progress` is called with the number of runs so far.
    """
    if not models or isinstance(models, str):
        raise InputError("`models` must be a list of models, each as provider:model, such as ['openai-chat:gpt-5.6'].")
    if hasattr(policies, "compactors"):
        raise InputError("`policies` must be a list of policies, such as [KeepLast(6), Economy()].")
    if not isinstance(transcript, Transcript):
        raise InputError(
            f"`transcript` must be a Transcript, as `transcript_of` returns it, not {type(transcript).__name__}."
        )
    policies = Combine(*policies).policies
    trace = Trace(transcript, system)
    runs: list[SimulatedRun] = []

    def add(run: SimulatedRun) -> None:
        runs.append(run)
        if progress:
            progress(len(runs))

    reusable: dict[tuple[object, ...], PolicyReplay] = {}
    for each in models:
        model = each if isinstance(each, SimulatedModel) else SimulatedModel.from_label(each)
        setup = ReplaySetup(trace, model, summary, reports)
        for policy in policies:
            # A replay that does not depend on prices is the same for all models with the same limits.
            key = (repr(policy), setup.estimated.counter, model.window, model.caches and model.cache_seconds)
            replay = reusable.get(key) or PolicyReplay(setup, _use_always(policy))
            if not replay.depends_on_prices and not replay.problem:
                reusable[key] = replay
            add(_build_run(repr(policy), replay, setup))
        if optimum:
            add(_build_run(OPTIMUM, PolicyReplay(setup, schedule_policy(find_cheapest_schedule(setup))), setup))
    return runs


def _use_always(policy: Policy) -> Callable[[int], Policy]:
    return lambda _: policy


def _build_run(name: str, replay: PolicyReplay, setup: ReplaySetup) -> SimulatedRun:
    return SimulatedRun(
        policy=name,
        model=setup.model.label,
        calls=tuple(_build_call(call, setup) for call in replay.calls),
        ratios=setup.model.ratios,
        receipts=replay.receipts,
        problem=replay.problem,
    )


def _build_call(call: ReplayedCall, setup: ReplaySetup) -> SimulatedCall:
    usage = call.usage(setup.model)
    return SimulatedCall(
        entry=setup.trace.skipped + call.position,
        turn=setup.trace.entries[call.position].turn,
        usage=usage,
        cost=cost(usage, setup.model.prices),
        summary=call.summary,
        begins=call.begins,
        card=call.card,
    )

"""Simulate a conversation under other policies and prices."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from longtalk._util.concurrency import run_in_thread
from longtalk.context.costs import CostReceipt
from longtalk.policies.notation import format_policy, parse_policy
from longtalk.service.native.conversations import find_info
from longtalk.service.native.objects import Name, Text
from longtalk.service.native.routes import ApiCall, Nothing, Route
from longtalk.simulation.compare import OPTIMUM, POLICIES, SimulatedRun, choose_models, simulate, transcript_of
from longtalk.stores.base import MAIN
from longtalk.usage import Usage

Models = Annotated[list[Text], msgspec.Meta(max_length=3)]
Policies = Annotated[list[Text], msgspec.Meta(max_length=8)]


class Simulate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to simulate."""

    models: Models = []
    """Models with known prices, as `provider:model`; by default those of the conversation."""
    policies: Policies = []
    """Policies as in Python: `KeepLast(10)`; by default one of each kind."""
    branch: Name = MAIN


class CallFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated model call."""

    turn: str
    entry: int
    usage: Usage
    cost: float | None
    summary: bool
    """Whether the call writes a summary."""
    begins: bool
    """Whether the context was compacted before it."""


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation would have cost with one model under one policy."""

    model: str
    policy: str
    """The policy, or "optimum" for the cheapest moments in hindsight."""
    usage: Usage
    cost: float | None
    calls: list[CallFigures]
    receipts: list[CostReceipt]
    problem: str
    """Why it could not be completed; empty if it was."""


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation would have cost."""

    runs: list[RunFigures]


async def run_simulation(call: ApiCall[Nothing, Simulate]) -> Simulation:
    """Simulate a branch with each model and policy. Nothing is sent to a model."""
    info, given = await find_info(call), call.body
    policies = [parse_policy(each) for each in given.policies] or list(POLICIES)
    recorded = transcript_of(await call.archive.talk(info.id), branch=given.branch)
    models = given.models or choose_models(recorded)
    found: list[SimulatedRun] = await run_in_thread(lambda: simulate(recorded, models=models, policies=policies))
    names = [*map(format_policy, policies), OPTIMUM] * len(models)
    return Simulation(runs=[_to_figures(run, name) for run, name in zip(found, names, strict=True)])


def _to_figures(run: SimulatedRun, policy: str) -> RunFigures:
    return RunFigures(
        model=run.model,
        policy=policy,
        usage=run.usage,
        cost=None if run.cost is None else run.cost.total,
        calls=[
            CallFigures(
                turn=call.turn,
                entry=call.entry,
                usage=call.usage,
                cost=None if call.cost is None else call.cost.total,
                summary=call.summary,
                begins=call.begins,
            )
            for call in run.calls
        ],
        receipts=list(run.receipts),
        problem=run.problem,
    )


ROUTES: tuple[Route[Any, Any], ...] = (
    Route("POST", "/conversations/{conversation}/simulate", run_simulation, body=Simulate, answer=Simulation),
)

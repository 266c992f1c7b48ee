"""Estimate what the turns of a conversation would have cost if each had sent the whole history: a plain replay.

The figures come from what was stored when the turns ran, so nothing is counted again, and long conversations are quick.
Two amounts are estimated: without any cache, and with the cache of the provider, which keeps what a request sent for
some minutes. `simulate` is exact where this is an estimate, and slower.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from longtalk.archive.metrics import Metrics
from longtalk.errors import InputError
from longtalk.models.call_cost import add_dollars, cost
from longtalk.simulation.inputs import SimulatedModel
from longtalk.usage import Usage


class ReplayCost(msgspec.Struct, frozen=True, kw_only=True):
    """One turn as a replay of the whole history would have sent it."""

    turn: str
    at: int
    """When the turn began, in milliseconds since 1970."""
    usage: Usage
    """The tokens of its model calls; `cached` and `written` as with the provider's cache."""
    plain: float | None
    """The cost in US dollars without a cache; None if the price is unknown."""
    cached: float | None
    """The cost in US dollars with the provider's cache; None if the price is unknown."""


def estimate_replay(metrics: Iterable[Metrics]) -> list[ReplayCost]:
    """Return what each turn of a branch would have cost with the whole history, given their metrics in order."""
    found: list[ReplayCost] = []
    last: tuple[str, int, int, int] = ("", 0, 0, 0)
    for each in metrics:
        model = _find_model(each.model)
        calls = max(1, each.calls)
        # What was left out would have been sent, and what stood in its place would not.
        size = max(1, (each.usage.input or each.total) // calls + each.left_out - each.summary)
        label, at, before, said = last
        sent_all = not (each.left_out or each.summary or each.recall)
        if label == each.model and not sent_all:
            # The history grows by the answer before, at least. Recalled entries are counted as they were quoted.
            size = max(size, before + said)
        kept = before if label == each.model and each.at - at < 1_000 * model.cache_seconds else 0
        answer = each.usage.output // calls
        usages = []
        for number in range(calls):
            cached = min(size, kept) if model.caches else 0
            if sent_all:
                # The turn has sent everything, so that what the provider reported is what a replay would get.
                cached = min(size, max(cached, each.usage.cached // calls))
            written = size - cached if model.bills_writes else 0
            output = each.usage.output - answer * (calls - 1) if number == calls - 1 else answer
            usages.append(Usage(input=size, output=output, cached=cached, written=written))
            kept = size
        last = (each.model, each.at, size, answer)
        found.append(
            ReplayCost(
                turn=each.turn,
                at=each.at,
                usage=sum(usages, Usage()),
                plain=_add_costs([Usage(input=usage.input, output=usage.output) for usage in usages], model),
                cached=_add_costs(usages, model),
            )
        )
    return found


def _add_costs(usages: list[Usage], model: SimulatedModel) -> float | None:
    costs = [cost(usage, model.prices) for usage in usages]
    known = [each.total for each in costs if each is not None]
    return add_dollars(known) if len(known) == len(costs) else None


@lru_cache(maxsize=100)
def _find_model(label: str) -> SimulatedModel:
    try:
        return SimulatedModel.from_label(label)
    except InputError:
        return SimulatedModel(label=label)

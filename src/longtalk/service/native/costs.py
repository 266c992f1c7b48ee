"""What conversations cost: by turn and by day, beside what sending the whole history would have cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from longtalk.archive.daily import count_days, find_day
from longtalk.archive.metrics import Metrics
from longtalk.models.call_cost import add_dollars
from longtalk.service.native.conversations import find_info
from longtalk.service.native.objects import BranchQuery
from longtalk.service.native.routes import ApiCall, Nothing, Route
from longtalk.simulation.replay_costs import ReplayCost, estimate_replay
from longtalk.usage import Usage


class DayObject(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of one day in which a model was called. Summaries made in the background are not counted."""

    day: str
    """The day on which the turns began, in UTC."""
    turns: int
    usage: Usage
    cost: float | None
    """The known costs in US dollars; null if no cost is known."""
    unpriced: int
    """The number of turns whose cost is unknown; no amount includes them."""
    estimated: int
    """The number of turns whose last answer was cut off before its usage was reported, so that it is an estimate."""
    replay: Usage
    """The tokens that all turns would have had with the whole history."""
    plain: float | None
    """What the priced turns would have cost with the whole history and no cache; null if no cost is known."""
    cached: float | None
    """The same with the cache of the provider."""


class Days(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and cost by day, oldest first."""

    days: list[DayObject]


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of a branch as a replay of the whole history would have sent them, oldest first: an estimate."""

    turns: list[ReplayCost]


async def read_replay(call: ApiCall[BranchQuery, Nothing]) -> Replay:
    """Return what each turn of a branch would have cost with the whole history, without and with a cache."""
    info = await find_info(call)
    return Replay(turns=estimate_replay(await call.archive.metrics(info.id, branch=call.query.branch)))


async def read_days(call: ApiCall[Nothing, Nothing]) -> Days:
    """Return tokens and cost by day of a conversation, with all its branches."""
    return await _count(call, [(await find_info(call)).id])


async def read_all_days(call: ApiCall[Nothing, Nothing]) -> Days:
    """Return tokens and cost by day of all conversations together. Samples don't count."""
    return await _count(call, [each.id for each in await call.archive.every() if not each.meta.get("sample")])


async def _count(call: ApiCall[Nothing, Nothing], conversations: Iterable[str]) -> Days:
    metrics: dict[str, Metrics] = {}
    replays: dict[str, ReplayCost] = {}
    for name in conversations:
        for branch in await call.archive.branches(name):
            found = await call.archive.metrics(name, branch=branch)
            metrics |= {each.turn: each for each in found}
            replays |= {each.turn: each for each in estimate_replay(found)}
    by_day: dict[str, list[str]] = {}
    for each in metrics.values():
        by_day.setdefault(find_day(each.at), []).append(each.turn)

    def add(turns: list[str], read: Callable[[ReplayCost], float | None]) -> float | None:
        amounts = [read(replays[turn]) for turn in turns if metrics[turn].cost is not None]
        known = [amount for amount in amounts if amount is not None]
        return add_dollars(known) if known and len(known) == len(amounts) else None

    return Days(
        days=[
            DayObject(
                day=stats.day,
                turns=stats.turns,
                usage=stats.usage,
                cost=stats.cost,
                unpriced=stats.unpriced,
                estimated=stats.estimated,
                replay=sum((replays[turn].usage for turn in by_day[stats.day]), Usage()),
                plain=add(by_day[stats.day], lambda each: each.plain),
                cached=add(by_day[stats.day], lambda each: each.cached),
            )
            for stats in count_days(metrics.values())
        ]
    )


_ONE = "/conversations/{conversation}"
ROUTES: tuple[Route[Any, Any], ...] = (
    Route("GET", _ONE + "/replay", read_replay, query=BranchQuery, answer=Replay),
    Route("GET", _ONE + "/stats/daily", read_days, answer=Days),
    Route("GET", "/stats/daily", read_all_days, answer=Days),
)

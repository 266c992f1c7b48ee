"""Tokens and cost by day."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from longtalk.archive.metrics import Metrics
from longtalk.models.call_cost import add_dollars
from longtalk.usage import Usage

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DayStats(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of one day in which a model was called. Summaries made in the background are not counted."""

    day: str
    """The day on which the turns began, in UTC, such as 2026-11-18."""
    turns: int
    usage: Usage
    """The tokens of all model calls, as the providers reported them; see `estimated`."""
    cost: float | None
    """The known costs in US dollars, at the prices when the turns ran; None if no cost is known."""
    unpriced: int
    """The number of turns whose cost is unknown; `cost` does not include them."""
    estimated: int = 0
    """The number of turns whose last answer was cut off before its usage was reported, so that it is an estimate."""


def find_day(at: int) -> str:
    """Return the day in UTC, such as 2026-11-18, of a time in milliseconds since 1970."""
    return (_EPOCH + timedelta(milliseconds=at)).date().isoformat()


def count_days(metrics: Iterable[Metrics]) -> list[DayStats]:
    """Return the figures of each day that has turns, oldest first. A turn that is given twice counts once."""
    days: dict[str, list[Metrics]] = {}
    for each in {each.turn: each for each in metrics}.values():
        days.setdefault(find_day(each.at), []).append(each)
    return [_count_day(day, turns) for day, turns in sorted(days.items())]


def _count_day(day: str, turns: list[Metrics]) -> DayStats:
    known = [each.cost for each in turns if each.cost is not None]
    return DayStats(
        day=day,
        turns=len(turns),
        usage=sum((each.usage for each in turns), Usage()),
        cost=add_dollars(known) if known else None,
        unpriced=len(turns) - len(known),
        estimated=sum(each.estimated for each in turns),
    )

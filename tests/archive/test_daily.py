"""Tokens and cost by day."""

from __future__ import annotations

from longtalk.archive.daily import count_days
from longtalk.archive.metrics import Metrics
from longtalk.usage import Usage

DAY = 86_400_000


def make(turn: str, at: int, cost: float | None) -> Metrics:
    return Metrics(turn=turn, at=at, model="m", status="complete", calls=1, usage=Usage(input=10, cached=4), cost=cost)


def test_turns_are_summed_by_the_day_on_which_they_began() -> None:
    found = count_days([make("b", DAY, 0.5), make("a", DAY - 1, 0.25), make("c", 2 * DAY - 1, None)])
    assert [(each.day, each.turns, each.cost, each.unpriced) for each in found] == [
        ("1970-01-01", 1, 0.25, 0),
        ("1970-01-02", 2, 0.5, 1),
    ]
    assert found[1].usage == Usage(input=20, cached=8)


def test_a_turn_that_branches_share_counts_once() -> None:
    (day,) = count_days([make("a", 0, 0.25), make("a", 0, 0.25)])
    assert (day.turns, day.cost) == (1, 0.25)

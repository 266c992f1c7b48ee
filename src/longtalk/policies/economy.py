"""`Economy`: summarize when it saves money, by the balance rule.

Older exchanges are paid for again with each request, whereas making a summary is paid for once. So the rule is to
summarize when the total spent on resending the older exchanges reaches the price of a summary. The rule needs no
forecast of how long the conversation will be.
"""

from __future__ import annotations

import msgspec

from longtalk.policies.base import Compactor, Size
from longtalk.policies.limits import AnyOf, OverWindow
from longtalk.policies.summarize import SUMMARY_TOKENS, SummarizeOldest

MAX_WINDOW_SHARE = 0.8
"""The share of the model's window above which a new epoch begins even if it does not save money."""


class SummaryPays(msgspec.Struct, frozen=True):
    """A trigger that fires when resending the older exchanges has cost as much as a summary would.

    The summary would have `length` tokens, and the last `keep` exchanges would not be summarized.
    """

    keep: int
    length: int
    compares_costs = True

    def fires(self, size: Size) -> bool:
        return size.summary_pays(self.keep, self.length)

    def __str__(self) -> str:
        return "resending older exchanges has cost as much as a summary"


class OverOlderExchanges(msgspec.Struct, frozen=True):
    """A trigger that fires while a request has more than `keep` exchanges that may be left out."""

    keep: int

    def fires(self, size: Size) -> bool:
        return size.droppable > self.keep

    def __str__(self) -> str:
        return f"over {self.keep:,} older exchanges"


class Economy(msgspec.Struct, frozen=True):
    """A policy that summarizes the older exchanges as soon as resending them has cost as much as a summary would.

    It also summarizes when a request exceeds 80 % of the model's window. The last two exchanges before the current one
    are kept. `length`, `background` and `timeout` mean the same as for `SummarizeOldest`.
    """

    length: int = SUMMARY_TOKENS
    background: bool = False
    timeout: float = 60

    def __post_init__(self) -> None:
        self._make_strategy()

    def _make_strategy(self) -> SummarizeOldest:
        return SummarizeOldest(length=self.length, background=self.background, timeout=self.timeout)

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        strategy, full = self._make_strategy(), OverWindow(MAX_WINDOW_SHARE)
        to = AnyOf(OverOlderExchanges(strategy.keep), full)
        pays = SummaryPays(strategy.keep, strategy.length)
        return (Compactor(pays, (strategy,), to), Compactor(full, (strategy,), to))

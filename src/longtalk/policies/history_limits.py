"""Triggers and targets of `Memory`: a new epoch saves money, or too many tokens precede the current exchange."""

from __future__ import annotations

import msgspec

from longtalk.policies.base import Size


class BriefPays(msgspec.Struct, frozen=True):
    """A trigger that fires when a new epoch would save money and the brief, or a summary, can replace older exchanges.

    `recent` and `length` mean the same as for `Size.brief_pays`.
    """

    recent: int
    length: int
    compares_costs = True

    def fires(self, size: Size) -> bool:
        return size.brief_pays(self.recent, self.length)

    def __str__(self) -> str:
        return "resending older exchanges has cost as much as a new epoch"


class OverHistory(msgspec.Struct, frozen=True):
    """A trigger that fires when more than `limit` tokens precede the current exchange and some may be left out."""

    limit: int

    def fires(self, size: Size) -> bool:
        return size.droppable > 0 and size.history > self.limit

    def __str__(self) -> str:
        return f"over {self.limit:,} tokens of history"


class HistoryFull(msgspec.Struct, frozen=True):
    """A target that is met when no exchange remains to drop and at most `limit` tokens precede the current one."""

    limit: int
    whole: int = 0
    """The limit of which the longest possible head leaves `limit`; 0 if it is the same."""

    def fires(self, size: Size) -> bool:
        return size.droppable > 0 or size.history > self.limit

    def __str__(self) -> str:
        rest = f" (its limit of {self.whole:,}, less what the brief and outlines may have)" if self.whole else ""
        return f"over {self.limit:,} tokens of history{rest}"

"""Compact when it pays: the balance rule."""

from __future__ import annotations

import msgspec

from longtalk.policies.base import Compactor, Size
from longtalk.policies.limits import AnyOf, OverWindow
from longtalk.policies.summarize import LENGTH, SummarizeOldest

SHARE = 0.8
"""Of the window: there a new epoch begins whatever it costs."""


class Due(msgspec.Struct, frozen=True):
    """Fires when carrying the older exchanges along has cost as much as a summary in their place would."""

    keep: int
    length: int

    def fires(self, size: Size) -> bool:
        return size.due(self.keep, self.length)

    def __str__(self) -> str:
        return "carrying it on has cost as much as a summary"


class Older(msgspec.Struct, frozen=True):
    """Fires while there are more exchanges that may go than these."""

    keep: int

    def fires(self, size: Size) -> bool:
        return size.loose > self.keep

    def __str__(self) -> str:
        return f"over {self.keep:,} older exchanges"


class Economy(msgspec.Struct, frozen=True):
    """Puts a summary in the place of the older exchanges as soon as carrying them on has cost as much as that would.

    Carrying an exchange along costs little with each call, a summary costs more, once. The last two exchanges before
    the current one stay. As `SummarizeOldest` otherwise.
    """

    length: int = LENGTH
    background: bool = False
    timeout: float = 60

    def __post_init__(self) -> None:
        self._strategy()

    def _strategy(self) -> SummarizeOldest:
        return SummarizeOldest(length=self.length, background=self.background, timeout=self.timeout)

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        how, full = self._strategy(), OverWindow(SHARE)
        to = AnyOf(Older(how.keep), full)
        return (Compactor(Due(how.keep, how.length), (how,), to), Compactor(full, (how,), to))

"""A summary in place of the oldest exchanges, when a request has become too long."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from longtalk.errors import InputError
from longtalk.policies.base import Compactor
from longtalk.policies.limits import OverTokens, at_least_one, target
from longtalk.policies.view import View
from longtalk.summaries import Summary, Wanted

LENGTH = 500
"""Tokens of a summary."""


class SummarizeOldest(msgspec.Struct, frozen=True):
    """Puts a summary of at most `length` tokens in the place of as many of the oldest exchanges as the target asks for.

    The last `keep` before the current one stay, if the limit has room for them. The model that is talked with writes
    the summary, before the next call or, with `background`, after an answer while nobody waits for it. One that is not
    there within `timeout` seconds, empty, or not a summary changes nothing.
    """

    length: int = LENGTH
    keep: int = 2
    background: bool = False
    timeout: float = 60

    def __post_init__(self) -> None:
        at_least_one(self.length, "The length of a summary")
        if self.length < 50:
            raise InputError(f"A summary has 50 tokens or more, not {self.length}.")
        if isinstance(self.keep, bool) or not isinstance(self.keep, int) or self.keep < 0:
            raise InputError(f"`keep` is a number of exchanges, 0 or more, not {self.keep!r}.")
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float) or not 0 < self.timeout < 10**6:
            raise InputError(f"`timeout` is a number of seconds, not {self.timeout!r}.")
        if not isinstance(self.background, bool):
            raise InputError(f"`background` is True or False, not {self.background!r}.")

    def apply(self, view: View, limits: Compactor) -> View:
        newest = view.newest_summary
        shorter = view.with_summary(newest) if newest is not None else view
        # What was unpinned may be in the one that is there.
        if (shorter.blocks, shorter.summary) != (view.blocks, view.summary):
            view = shorter
            if not limits.over.fires(view):
                return view
        if view.asks != ("after" if self.background else "before"):
            return view
        stop = self._stop(view, limits)
        if stop <= (view.wants.stop if view.wants else 0):
            return view
        wants = Wanted(stop=stop, length=self.length, timeout=float(self.timeout))
        return msgspec.structs.replace(view, wants=wants)

    def _stop(self, view: View, limits: Compactor) -> int:
        """Up to where a summary should go; 0 if it would not make the request shorter."""
        loose = [block for block in view.blocks[:-1] if not block.pinned]
        head = view.summary.tokens if view.summary else 0

        def left(gone: int) -> View:
            covers = ((0, loose[gone - 1].stop),) if gone else ()
            return view.with_summary(Summary(text="", covers=covers, tokens=max(head, self.length)))

        numbers = range(len(loose) + 1)
        gone = min(
            bisect_left(numbers, True, key=lambda gone: not limits.to.fires(left(gone))), max(0, len(loose) - self.keep)
        )
        if limits.over.fires(left(gone)):
            gone = min(bisect_left(numbers, True, key=lambda gone: not limits.over.fires(left(gone))), len(loose))
        if not gone or left(gone).counted >= view.counted:
            return 0
        return loose[gone - 1].stop


class Summarize(msgspec.Struct, frozen=True):
    """When a request would have more than `over` tokens, a summary takes the place of its oldest exchanges.

    `to` is how long the request is then, half of the limit unless told otherwise. As `SummarizeOldest` otherwise.
    """

    over: int
    to: int | None = None
    length: int = LENGTH
    background: bool = False
    timeout: float = 60

    def __post_init__(self) -> None:
        at_least_one(self.over, "A number of tokens")
        to = target(self.over, self.to, sliding=False)
        self._strategy()
        if self.length >= to:
            raise InputError(f"A summary of {self.length} tokens leaves no room in {to}: raise `over`.")

    def _strategy(self) -> SummarizeOldest:
        return SummarizeOldest(length=self.length, background=self.background, timeout=self.timeout)

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        to = target(self.over, self.to, sliding=False)
        return (Compactor(OverTokens(self.over), (self._strategy(),), OverTokens(to)),)

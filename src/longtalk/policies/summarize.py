"""`Summarize` and `SummarizeOldest`: replace the oldest exchanges with a summary when a request becomes too long."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from longtalk.errors import InputError
from longtalk.memory.summary import Summary, SummaryRequest
from longtalk.policies.base import Compactor, Trigger
from longtalk.policies.limits import OverTokens, check_positive, resolve_target
from longtalk.policies.view import View

SUMMARY_TOKENS = 500
"""The default maximum length of a summary, in tokens."""


class SummarizeOldest(msgspec.Struct, frozen=True):
    """A strategy that replaces the oldest exchanges with a summary, only as many as needed to meet the target.

    The summary has at most `length` tokens. The last `keep` exchanges before the current one are not summarized as long
    as they fit the limit. The conversation's own model writes the summary: before the next call or, with
    `background=True`, after an answer, so that the user does not wait for it. If the model call fails, returns no text
    or takes longer than `timeout` seconds, the view does not change.
    """

    length: int = SUMMARY_TOKENS
    keep: int = 2
    background: bool = False
    timeout: float = 60

    def __post_init__(self) -> None:
        check_positive(self.length, "`length` of a summary, in tokens,")
        if self.length < 50:
            raise InputError(f"`length` of a summary, in tokens, must be at least 50, not {self.length}.")
        if isinstance(self.keep, bool) or not isinstance(self.keep, int) or self.keep < 0:
            raise InputError(f"`keep`, a number of exchanges, must be an integer of at least 0, not {self.keep!r}.")
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float) or not 0 < self.timeout < 10**6:
            raise InputError(f"`timeout` must be a positive number of seconds below 1,000,000, not {self.timeout!r}.")
        if not isinstance(self.background, bool):
            raise InputError(f"`background` must be True or False, not {self.background!r}.")

    def apply(self, view: View, limits: Compactor) -> View:
        newest = view.usable_summary
        shorter = view.with_summary(newest) if newest is not None else view
        # An exchange that is no longer pinned may already be covered by the present summary.
        if (shorter.blocks, shorter.summary) != (view.blocks, view.summary):
            view = shorter
            if not limits.over.fires(view):
                return view
        if view.may_summarize != ("after" if self.background else "before"):
            return view
        stop = self._find_stop(view, limits)
        if stop <= (view.summary_request.stop if view.summary_request else 0):
            return view
        request = SummaryRequest(stop=stop, length=self.length, timeout=float(self.timeout))
        return msgspec.structs.replace(view, summary_request=request)

    def _find_stop(self, view: View, limits: Compactor) -> int:
        """Return the position at which the part to summarize ends; 0 if a summary would not shorten the request."""
        droppable = view.droppable_blocks
        head = view.summary.tokens if view.summary else 0

        def without_oldest(count: int) -> View:
            covers = ((0, droppable[count - 1].stop),) if count else ()
            return view.with_summary(Summary(text="", covers=covers, tokens=max(head, self.length)))

        def count_until_below(trigger: Trigger) -> int:
            counts = range(len(droppable) + 1)
            return bisect_left(counts, True, key=lambda count: not trigger.fires(without_oldest(count)))

        count = min(count_until_below(limits.to), max(0, len(droppable) - self.keep))
        if limits.over.fires(without_oldest(count)):
            count = min(count_until_below(limits.over), len(droppable))
        if not count or without_oldest(count).counted >= view.counted:
            return 0
        return droppable[count - 1].stop


class Summarize(msgspec.Struct, frozen=True):
    """A policy that replaces the oldest exchanges with a summary when a request would have more than `over` tokens.

    Afterwards the request has at most `to` tokens (by default half of `over`). `length`, `background` and `timeout`
    mean the same as for `SummarizeOldest`.
    """

    over: int
    to: int | None = None
    length: int = SUMMARY_TOKENS
    background: bool = False
    timeout: float = 60

    def __post_init__(self) -> None:
        check_positive(self.over, "`over`, a number of tokens,")
        to = resolve_target(self.over, self.to, sliding=False)
        self._make_strategy()
        if self.length >= to:
            raise InputError(
                f"A summary of {self.length} tokens does not fit into a request of {to} tokens: "
                "raise `over` or lower `length`."
            )

    def _make_strategy(self) -> SummarizeOldest:
        return SummarizeOldest(length=self.length, background=self.background, timeout=self.timeout)

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        to = resolve_target(self.over, self.to, sliding=False)
        return (Compactor(OverTokens(self.over), (self._make_strategy(),), OverTokens(to)),)

"""Find the cheapest moments for summaries in a conversation that is known to its end.

A schedule is a set of answers; before each of them, a summary replaces all but the last exchanges. The cost of a call
depends only on where the last summary was made, so dynamic programming can build the cheapest schedule up to each call
from the cheapest schedules up to earlier calls.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate, pairwise
from math import inf

import msgspec

from longtalk.memory.summary import TAG, render_summary_prompt
from longtalk.policies import Compactor, Policy, SummarizeOldest
from longtalk.policies.economy import OverOlderExchanges
from longtalk.policies.summarize import SUMMARY_TOKENS
from longtalk.simulation.inputs import ReplaySetup
from longtalk.transcript.transcript import Transcript

KEEP = 2
"""The number of exchanges before the current one that a summary does not replace, as `keep` of `SummarizeOldest`."""
OPTIMUM = "optimum"


def schedule_policy(moments: frozenset[int]) -> Callable[[int], Policy]:
    """Return a function that takes a position and returns the policy to use there.

    That policy makes a summary if the position is one of `moments`, and otherwise does nothing.
    """
    return lambda position: _Scheduled(position in moments)


def find_cheapest_schedule(setup: ReplaySetup) -> frozenset[int]:
    """Return the cheapest schedule: the positions of the answers before which a summary should be made."""
    costs = _Costs(setup)
    calls = range(len(setup.trace.answers))
    cheapest = [0.0, *[inf] * (len(calls) - 1)]
    """For each call, the lowest cost of everything before it, including a summary made there; 0 for the first call."""
    previous = [0] * len(calls)
    """For each call, where the cheapest schedule up to that call makes the previous summary, also as a call."""
    totals = [inf] * len(calls)
    """For each call, the total cost of the conversation if the last summary is made there."""
    for first in calls:
        spent = cheapest[first]
        for i in calls[first:]:
            if spent == inf:
                break
            made = spent + costs.summary(first, i)
            if made < cheapest[i]:
                cheapest[i], previous[i] = made, first
            spent += costs.request(first, i)
        totals[first] = spent
    last = totals.index(min(totals))
    moments = set()
    while last:
        moments.add(setup.trace.answers[last])
        last = previous[last]
    return frozenset(moments)


class _Costs:
    """The cost of the calls of a conversation, in units of one uncached input token.

    In all methods, `first` is the call before which the last summary was made; 0 means that no summary was made yet.
    All requests from `first` on share a prefix.
    """

    def __init__(self, setup: ReplaySetup) -> None:
        trace, model, sizes = setup.trace, setup.model, setup.reported
        self._answers = trace.answers
        self._tokens_before = [0, *accumulate(sizes.count(entry.native) for entry in trace.entries)]
        """The total number of tokens of the entries before each position."""
        starts = [first for first, _ in Transcript(fresh=tuple(trace.entries)).exchanges()]
        self._first_kept = [starts[max(0, bisect_right(starts, position - 1) - 1 - KEEP)] for position in trace.answers]
        """For each call, the position of the first entry that a summary made before the call would not replace."""
        self._preamble = sizes.preamble
        self._summary_tokens = sizes.count(trace.wire.quote(TAG, setup.summary(SUMMARY_TOKENS, 1, sizes.counter)))
        self._summary_cost = (
            sizes.count(trace.wire.write_user(render_summary_prompt(SUMMARY_TOKENS)))
            + model.ratios.output * self._summary_tokens
        )
        self._room = model.window - model.answer if model.window else inf
        self._read, self._write = model.ratios.read, model.ratios.write
        lasts = 1_000 * model.cache_seconds if model.caches else 0
        pauses = [trace.at[now - 1] - trace.at[then - 1] for then, now in pairwise(trace.answers)]
        self._resend_price = [self._write, *(self._read if pause < lasts else self._write for pause in pauses)]
        """For each call, the cost of sending one token again that the previous call has already sent."""

    def request(self, first: int, i: int) -> float:
        """Return the cost of call `i`; infinite if the request does not fit the context window.

        If more calls follow, the recorded answer must fit the window too.
        """
        whole = self._tokens(first, self._answers[i])
        if self._tokens(first, self._answers[i] + (i + 1 < len(self._answers))) > self._room:
            return inf
        if i > first:
            known = self._tokens(first, self._answers[i - 1])
            return self._resend_price[i] * known + self._write * (whole - known)
        # The summary call has just sent the preamble, so the provider has it in its cache.
        return (self._read if first else self._write) * self._preamble + self._write * (whole - self._preamble)

    def summary(self, first: int, i: int) -> float:
        """Return the cost of making a summary before call `i`; infinite if there is nothing to summarize."""
        if i == first or self._first_kept[i] <= (self._first_kept[first] if first else 0):
            return inf
        return self._resend_price[i] * self._tokens(first, self._first_kept[i]) + self._summary_cost

    def _tokens(self, first: int, stop: int) -> int:
        """Return the number of tokens of a request with the entries before position `stop`, partly summarized."""
        if not first:
            return self._preamble + self._tokens_before[stop]
        return (
            self._preamble
            + self._summary_tokens
            + self._tokens_before[stop]
            - self._tokens_before[self._first_kept[first]]
        )


class _Scheduled(msgspec.Struct, frozen=True):
    """A policy that makes a summary if `due` is True, and otherwise does nothing.

    Both variants have the same `repr`, so that switching between them does not invalidate earlier summaries.
    """

    due: bool

    def __repr__(self) -> str:
        return OPTIMUM

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        return (
            (Compactor(OverOlderExchanges(KEEP), (SummarizeOldest(keep=KEEP),), OverOlderExchanges(KEEP)),)
            if self.due
            else ()
        )

"""The cheapest moments for summaries in a conversation whose end is known.

A schedule says before which answers a summary takes the place of all but the last exchanges. What a call costs depends
only on where the last summary was made, so the cheapest schedule up to a moment is found from those up to earlier ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate, pairwise
from math import inf

import msgspec

from longtalk.policies import Compactor, Policy, SummarizeOldest
from longtalk.policies.economy import Older
from longtalk.policies.summarize import LENGTH
from longtalk.replay import Stage
from longtalk.summaries import TAG, request
from longtalk.transcript import Transcript

KEEP = 2
"""Exchanges before the current one that stay, as `SummarizeOldest` has it."""
OPTIMUM = "optimum"


def at_moments(moments: frozenset[int]) -> Callable[[int], Policy]:
    """The policy that has a summary made before the answers at these places."""
    return lambda place: _Scheduled(place in moments)


def cheapest(stage: Stage) -> frozenset[int]:
    """The places of the answers before which a summary is made, so that all costs least."""
    bill = _Bill(stage)
    calls = range(len(stage.trace.asked))
    least = [0.0, *[inf] * (len(calls) - 1)]
    """Of all calls before each one, if a summary is made then; before the first, none is."""
    came = [0] * len(calls)
    """Where the summary before that was made."""
    ended = [inf] * len(calls)
    """What all costs if the last summary is made before each call."""
    for first in calls:
        spent = least[first]
        for i in calls[first:]:
            if spent == inf:
                break
            made = spent + bill.summary(first, i)
            if made < least[i]:
                least[i], came[i] = made, first
            spent += bill.request(first, i)
        ended[first] = spent
    last = ended.index(min(ended))
    moments = set()
    while last:
        moments.add(stage.trace.asked[last])
        last = came[last]
    return frozenset(moments)


class _Bill:
    """What calls cost, in tokens sent anew. `first` is the call that the last summary was made before, if not the first
    of all; the calls since then begin alike."""

    def __init__(self, stage: Stage) -> None:
        trace, table, ruler = stage.trace, stage.table, stage.reported
        self._asked = trace.asked
        self._before = [0, *accumulate(ruler.of(entry.native) for entry in trace.entries)]
        """Tokens before each entry."""
        starts = [first for first, _ in Transcript(fresh=tuple(trace.entries)).exchanges()]
        self._raw = [starts[max(0, bisect_right(starts, place - 1) - 1 - KEEP)] for place in trace.asked]
        """Where the exchanges begin that a summary before each call would leave."""
        self._preamble = ruler.preamble
        self._head = ruler.of(trace.wire.quote(TAG, stage.summary(LENGTH, 1, ruler.counter)))
        self._asking = ruler.of(trace.wire.user(request(LENGTH))) + table.ratios.output * self._head
        self._room = table.window - table.answer if table.window else inf
        self._read, self._write = table.ratios.read, table.ratios.write
        lasts = 1_000 * table.cache_seconds if table.caches else 0
        pauses = [trace.at[now - 1] - trace.at[then - 1] for then, now in pairwise(trace.asked)]
        self._again = [self._write, *(self._read if pause < lasts else self._write for pause in pauses)]
        """What a token costs that was in the call before."""

    def request(self, first: int, i: int) -> float:
        """A call; more than anybody pays if the window has no room for it, and for its answer where it goes on."""
        whole = self._tokens(first, self._asked[i])
        if self._tokens(first, self._asked[i] + (i + 1 < len(self._asked))) > self._room:
            return inf
        if i > first:
            known = self._tokens(first, self._asked[i - 1])
            return self._again[i] * known + self._write * (whole - known)
        # The call for the summary had the preamble just now.
        return (self._read if first else self._write) * self._preamble + self._write * (whole - self._preamble)

    def summary(self, first: int, i: int) -> float:
        """The call for a summary before a call; more than anybody pays if there is nothing to sum up."""
        if i == first or self._raw[i] <= (self._raw[first] if first else 0):
            return inf
        return self._again[i] * self._tokens(first, self._raw[i]) + self._asking

    def _tokens(self, first: int, stop: int) -> int:
        """A request up to an entry."""
        if not first:
            return self._preamble + self._before[stop]
        return self._preamble + self._head + self._before[stop] - self._before[self._raw[first]]


class _Scheduled(msgspec.Struct, frozen=True):
    """A summary now, or nothing. Both are one policy: what was summed up stays so."""

    due: bool

    def __repr__(self) -> str:
        return OPTIMUM

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        return (Compactor(Older(KEEP), (SummarizeOldest(keep=KEEP),), Older(KEEP)),) if self.due else ()

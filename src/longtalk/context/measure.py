"""Measure the next request, and make the view of it that policies shorten.

A `RequestEstimate` uses existing counts, so it costs the same however long the conversation is. A view reads every
entry that is sent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from longtalk.context.costs import (
    CACHE_SECONDS,
    CostComparison,
    CostReceipt,
    Meter,
    Ratios,
    compare_costs,
    compute_ratios,
)
from longtalk.context.epochs import Anchor, Epoch, Pin
from longtalk.context.exclusions import list_excluded_positions, list_excluded_spans
from longtalk.context.suffixes import list_kept_suffixes
from longtalk.memory.brief.record import MAX_FAILED_REQUESTS, read_brief_record
from longtalk.memory.summary import Summary
from longtalk.policies import Block, View
from longtalk.policies.view import count_recent
from longtalk.tokens import Counter
from longtalk.transcript.manifest import MIDDLE, Run
from longtalk.transcript.passages import KIND as PASSAGES
from longtalk.transcript.passages import Passage, RecalledPassages
from longtalk.transcript.transcript import Transcript
from longtalk.wires.protocol import Wire

if TYPE_CHECKING:
    from longtalk.models.call_cost import Prices

MAX_ANSWER_ROOM = 4_096
"""The maximum number of tokens reserved for an answer of unknown length. Small windows reserve an eighth."""
UNKNOWN_WINDOW = 32_000
"""The number of tokens that is assumed for an unknown window."""


def find_answer_room(window: int | None, limit: int | None) -> int:
    """Return how many tokens of a window are kept free for the answer. `limit` is the most that it may have, if set."""
    return limit or min((window or 0) // 8, MAX_ANSWER_ROOM)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The model with its limits and prices, and the sizes of the other parts of a request."""

    wire: Wire
    counter: Counter
    model: str
    preamble: str
    """The digest of the preamble, as in `Turn.preamble`."""
    fixed: int
    """The number of tokens of the preamble and the instruction, as counted locally."""
    window: int | None
    """The model's window in tokens; None if it is unknown."""
    is_learned: bool = False
    """Whether the window, or the length of requests, follows from an earlier request that was refused.

    If so, the provider decides about a request that can't be made short enough, unless it has more than `given` tokens.
    """
    given: int | None = None
    """The window as the caller or the list of models states it; None if they don't."""
    answer: int
    """The number of tokens to keep free for the answer."""
    prices: Prices | None = None
    """The prices of a model call; None if they are unknown."""
    prices_unknown: str = ""
    """The reason why the prices are unknown; empty if they are known."""
    caches: bool = True
    """Whether the provider caches the beginning of a request."""
    cache_seconds: int | None = None
    """The number of seconds for which the provider caches it; None if unknown."""
    now: int = 0
    """The current time, in milliseconds since 1970."""

    @property
    def room(self) -> int | None:
        """The number of tokens that a request may have; None if the window is unknown."""
        return self.window and max(self.window - self.answer, self.window // 2, 1)

    def is_refused(self, size: View) -> bool:
        """Return True if a request is too long to be sent at all."""
        if self.window is None or size.tokens <= self.window:
            return False
        return not self.is_learned or (self.given is not None and size.counted > self.given)


class RequestEstimate:
    """The length of the next request in the present epoch, computed from counts, without reading the entries."""

    def __init__(self, transcript: Transcript, epoch: Epoch, terms: Terms) -> None:
        self.transcript = transcript
        self.epoch = epoch
        self.terms = terms
        self.comparison: CostComparison | None = None
        """The costs of continuing and of a new epoch; None until a trigger asks for the comparison."""
        self.meter: Meter | None = None
        """The amounts spent on resending, including the next call; None until a trigger asks for the comparison."""
        self.compaction_pays = False
        """Whether resending has cost as much as a new epoch."""
        self.near = False
        """Whether a memory card should be requested."""
        since, end = transcript.index_of(epoch.start), len(transcript)
        self.messages = epoch.messages + end - since
        self.counted = terms.fixed + epoch.tokens + transcript.tokens(since, end)
        for suffix in list_kept_suffixes(transcript, epoch.current):
            self.counted += max(0, suffix.tokens)
        self.tokens = self.counted
        self._window = terms.window or UNKNOWN_WINDOW
        self.guessed = False
        """Whether a trigger has read the window, which may be an assumption."""
        anchor = transcript.records.read_latest("anchor", Anchor)
        if anchor is None or anchor.model != terms.model:
            return
        if anchor.refused and anchor.counted > 0 and not anchor.is_plausible:
            self.tokens = self.counted * min(anchor.reported, 10**12) // anchor.counted
        elif anchor.is_plausible:
            scale = anchor.scale
            self.tokens = round(scale * self.counted)
            if (anchor.epoch, anchor.preamble) == (epoch.start, terms.preamble):
                self.tokens = max(1, round(anchor.reported + scale * (self.counted - anchor.counted)))

    @property
    def window(self) -> int:
        self.guessed = True
        return self._window

    def summary_pays(self, keep: int, length: int) -> bool:
        """Return True if resending has cost as much as a new epoch with a summary and the last `keep` exchanges."""
        starts = [first for first, _ in self._raw]
        stay = starts[-keep - 1] if len(starts) > keep else self.transcript.index_of(self.epoch.raw)
        usual = self.epoch.summary.usual if self.epoch.summary else 0
        old = self._compare_costs(stay, round(self.scale * usual) if usual else length)
        self.compaction_pays = self.comparison is not None and self.comparison.due
        return old > length and self.compaction_pays

    def brief_pays(self, recent: int, length: int) -> bool:
        """Return True if a new epoch with the brief would save money and a card or summary covers older exchanges."""
        before = self._raw[:-1]
        lengths = [self._tokens(first, stop) for first, stop in before]
        number = len(before) - count_recent(lengths, recent, whole=recent)
        stay = self._raw[number][0] if self._raw else self.transcript.index_of(self.epoch.raw)
        old = self._compare_costs(stay, length, card=True)
        self.near = old > length and self.comparison is not None and self.comparison.near
        record = read_brief_record(self.transcript)
        at_hand = record.covers >= self.transcript.position(stay)
        self.compaction_pays = self.near and (at_hand or record.count_asks_since(self.epoch.raw) >= MAX_FAILED_REQUESTS)
        return self.compaction_pays

    @cached_property
    def _raw(self) -> list[tuple[int, int]]:
        """The exchanges that are sent unchanged, up to the end of the conversation."""
        found = self.transcript.exchanges(self.transcript.index_of(self.epoch.raw))
        return [(first, stop) for first, stop in found if not _is_inside(self._excluded, first)]

    @cached_property
    def _excluded(self) -> list[tuple[int, int]]:
        index_of = self.transcript.index_of
        return [(index_of(first), index_of(stop)) for first, stop in list_excluded_spans(self.epoch)]

    def _tokens(self, start: int, stop: int) -> int:
        """Return the tokens of what is sent of these entries."""
        counted = self.transcript.tokens(start, stop) if start < stop else 0
        for first, end in self._excluded:
            counted -= self.transcript.tokens(max(start, first), max(start, first, min(stop, end)))
        return round(self.scale * counted)

    @property
    def history(self) -> int:
        """The number of tokens before the current exchange, not counting the preamble."""
        first, stop = self._raw[-1] if self._raw else (len(self.transcript), len(self.transcript))
        current = self.transcript.tokens(first, stop)
        return round(self.scale * max(0, self.counted - self.terms.fixed - current))

    def _compare_costs(self, stay: int, length: int, *, card: bool = False) -> int:
        """Record what the current epoch costs, compared with a new epoch that keeps all entries from index `stay` on.

        Return the number of tokens that the new epoch would leave out.
        """
        transcript, epoch, terms = self.transcript, self.epoch, self.terms
        raw = transcript.index_of(epoch.raw)
        last = transcript.records.read_latest("meter", Meter) or Meter(epoch=0, model="", preamble="", size=0)
        goes_on = last.epoch == epoch.start
        sent = transcript.index_of(last.size) if goes_on and last.calls else stay
        warm = (last.model, last.preamble) == (terms.model, terms.preamble)
        warm = warm and terms.now - last.at < 1_000 * (terms.cache_seconds or CACHE_SECONDS)
        old = self._tokens(raw, stay)
        self.comparison = compare_costs(
            self.ratios,
            warm=warm,
            carried=last.carried if goes_on else 0.0,
            preamble=round(self.scale * terms.fixed),
            head=round(self.scale * epoch.summary.tokens) if epoch.summary else 0,
            old=old,
            recent=self._tokens(stay, sent),
            new=self._tokens(max(stay, sent), len(transcript)),
            length=length,
            card=card,
        )
        receipt = transcript.records.read_latest("receipt", CostReceipt)
        spared = receipt.spared if receipt is not None and receipt.epoch == epoch.start else 0
        self.meter = Meter(
            epoch=epoch.start,
            model=terms.model,
            preamble=terms.preamble,
            size=transcript.size,
            carried=self.comparison.carried,
            calls=last.calls + 1,
            saved=last.saved + self.comparison.rate * spared,
            spent=last.spent,
            recalled=last.recalled,
            ratios=self.ratios,
            carriage=self.comparison.rate + (last.carriage if goes_on else 0.0),
        )
        return old

    def list_promoted(self) -> list[Passage]:
        """Return the recalled passages that would be cheaper in the head of the next epoch."""
        found = self.transcript.records.read_latest(PASSAGES, RecalledPassages)
        if self.meter is None or found is None or found.epoch != self.epoch.start:
            return []
        excluded = list_excluded_spans(self.epoch)
        promoted = found.list_promoted(self.meter.compute_promotion_turns(self.ratios.write))
        return [each for each in promoted if not _is_inside(excluded, each.position)]

    @property
    def scale(self) -> float:
        """The number of reported tokens for each counted token."""
        return self.tokens / max(1, self.counted)

    @property
    def ratios(self) -> Ratios:
        return compute_ratios(self.terms.prices, self.tokens, caches=self.terms.caches)

    @property
    def droppable(self) -> int:
        pinned = [span for span in self.epoch.pinned if has_any_between(self.epoch.pins, *span)]
        return self.exchanges - 1 - len(pinned)

    @cached_property
    def exchanges(self) -> int:
        since = self.transcript.exchanges(self.transcript.index_of(self.epoch.current))
        return self.epoch.exchanges - 1 + len(since)


def make_view(estimate: RequestEstimate, pins: tuple[int, ...], excluded: tuple[int, ...] | None = None) -> View:
    """Return the view of what the present epoch sends, including exchanges that were pinned since it began.

    With `excluded`, exactly these exchanges are left out, instead of those that the epoch excludes.
    """
    transcript, epoch, terms = estimate.transcript, estimate.epoch, estimate.terms
    excluded = epoch.excluded if excluded is None else excluded
    included = sorted({*epoch.excluded}.difference(excluded))
    view = View(
        transcript=transcript,
        wire=terms.wire,
        counter=terms.counter,
        blocks=(),
        fixed=terms.fixed + count_kept_suffixes(transcript, find_current_exchange(transcript, epoch)),
        scale=estimate.scale,
        window=terms.window or UNKNOWN_WINDOW,
        lines=epoch.lines,
        digests=bool(epoch.lines) or any(run.is_digest for run in epoch.runs),
        summary=epoch.summary or find_stand_in(transcript, epoch),
        latest_summary=_read_summary(transcript),
        compaction_pays=estimate.compaction_pays,
        passages=tuple(estimate.list_promoted()),
    )
    # Exchanges that were pinned or included since the epoch began may be anywhere in the conversation.
    is_known = has_all_pins(epoch, pins) and not included
    exchanges = transcript.exchanges(transcript.index_of(epoch.raw) if is_known else 0)
    spans = [(transcript.position(first), transcript.position(stop - 1) + 1) for first, stop in exchanges]
    known = set(spans)
    old = [pair for pair in epoch.pinned if pair not in known]
    stay, before = set(epoch.pinned), set(epoch.pins)
    new = [pin for pin in pins if pin not in before]
    shaped = [run for run in epoch.runs if _is_special(run)]
    starts = [run.first for run in shaped]
    blocks: list[Block] = []
    for first, stop in sorted([*old, *spans]):
        if has_any_between(excluded, first, stop):
            continue
        is_pinned = has_any_between(pins, first, stop)
        is_back = is_pinned or has_any_between(included, first, stop)
        if first < epoch.raw and not is_back and (first, stop) not in stay:
            continue
        # Exchanges that were pinned since the epoch began are sent unchanged from now on.
        is_new = has_any_between(new, first, stop)
        inside = shaped[bisect_left(starts, first) : bisect_left(starts, stop)]
        altered = [] if is_new else [run for run in inside if run.last < stop]
        blocks.append(view.make_block(first, stop, pinned=is_pinned, altered=altered))
    return view.with_blocks(blocks)


def _read_summary(transcript: Transcript) -> Summary | None:
    """Return the newest summary, or None if there is none or it covers an excluded exchange."""
    found = transcript.records.read_latest("summary", Summary)
    if found is None or not found.is_consistent_with(transcript.size):
        return None
    return None if any(_is_inside(found.covers, place) for place in list_excluded_positions(transcript)) else found


def find_stand_in(transcript: Transcript, epoch: Epoch) -> Summary | None:
    """Return the summary that covers entries which another policy left out and the state shed, or None."""
    if epoch.start or not transcript.shed.entries:
        return None
    found = _read_summary(transcript)
    covered = found.covers if found is not None else ()
    gone = [(first, first + count) for first, count in transcript.shed.entries]
    return found if any(first < end and start < stop for first, stop in gone for start, end in covered) else None


def _is_inside(spans: Sequence[tuple[int, int]], position: int) -> bool:
    return any(first <= position < stop for first, stop in spans)


def has_any_between(positions: Sequence[int], first: int, stop: int) -> bool:
    """Return True if one of these sorted positions is at least `first` and below `stop`."""
    return bisect_left(positions, first) < bisect_left(positions, stop)


def count_kept_suffixes(transcript: Transcript, current: int) -> int:
    """Return the tokens of the kept suffixes after this position."""
    return sum([max(0, suffix.tokens) for suffix in list_kept_suffixes(transcript, current)])


def count_additions(transcript: Transcript, current: int, terms: Terms) -> int:
    """Return how many tokens memory added to the kept suffixes after the position `current`."""
    kept = list_kept_suffixes(transcript, current)
    return sum(max(0, each.tokens - each.remove_additions(terms.wire, terms.counter).tokens) for each in kept)


def find_current_exchange(transcript: Transcript, epoch: Epoch) -> int:
    """Return the position where the current exchange begins."""
    exchanges = transcript.exchanges(transcript.index_of(epoch.current))
    return transcript.position(exchanges[-1][0]) if exchanges else epoch.current


def _is_special(run: Run) -> bool:
    return run.keep > 0 or run.is_digest or run.reason == MIDDLE


# Pins


def read_pins(transcript: Transcript) -> list[Pin]:
    """Return the pins of the transcript."""
    return transcript.records.read_latest("pins", list[Pin]) or []


def list_pinned_positions(transcript: Transcript) -> tuple[int, ...]:
    """Return the positions of the pinned entries, sorted."""
    pins = transcript.records.read_latest("pins", list[Pin])
    return tuple(sorted({pin.place for pin in pins})) if pins else ()


def has_all_pins(epoch: Epoch, pins: tuple[int, ...]) -> bool:
    """Return True if the epoch sends all that is pinned."""
    if not pins:
        return True
    whole = epoch.start if any(map(_is_special, epoch.runs)) else epoch.raw
    known = set(epoch.pins)
    return all(pin in known or pin >= whole for pin in pins)

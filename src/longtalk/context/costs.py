"""What carrying a conversation along costs, and what each new epoch has cost and saved.

All is reckoned in tokens sent anew: what one of them costs is 1, one that is read from the cache `Ratios.read`, and so
on. That holds for any price, and where none is known.

Carrying a token costs its price of a cache read with each call; of a cache that has run out, that of writing it again.
A new epoch costs a summary call, and the writing of its head and of the exchanges that stay. The balance rule begins
one when what was spent on carrying tokens that a summary could stand for has reached what the new epoch costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from longtalk.memory.summary import PROMPT_TOKENS
from longtalk.usage import Usage

if TYPE_CHECKING:
    from longtalk.models.prices import Prices

CACHE_SECONDS = 300
"""For how long a provider keeps the beginning of a request, where nobody has said."""


class Ratios(msgspec.Struct, frozen=True):
    """What tokens cost, against one that is sent anew and not kept."""

    read: float = 0.1
    write: float = 1.25
    output: float = 5.0
    unit: float | None = None
    """US dollars for a token sent anew, if that is known."""

    def weigh(self, usage: Usage) -> float:
        """A model call, in tokens sent anew."""
        uncached = max(0, usage.input - usage.cached - usage.written)
        return uncached + self.read * usage.cached + self.write * usage.written + self.output * usage.output


def compute_ratios(prices: Prices | None, tokens: int, *, caches: bool) -> Ratios:
    """Return the ratios for a request of this many tokens; where no price is known, the usual ones.

    A free model gets them too: what costs no money still costs time.
    """
    rates = prices.get_rates(tokens) if prices is not None else None
    usual = Ratios()
    if rates is None or not rates.input:
        return usual if caches else Ratios(read=1.0, write=1.0)
    read, write = rates.cache_read, rates.cache_write
    return Ratios(
        read=(usual.read if read is None else read / rates.input) if caches else 1.0,
        write=write / rates.input if caches and write is not None else 1.0,
        output=rates.output / rates.input,
        unit=rates.input / 1_000_000,
    )


class Meter(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was spent on carrying, up to a model call."""

    epoch: int
    """Where the epoch began that the call belongs to."""
    model: str
    preamble: str
    size: int
    """How many entries there were."""
    at: int = 0
    """When it was answered."""
    carried: float = 0.0
    """Spent in this epoch on what a summary could stand for."""
    calls: int = 0
    """Of the whole conversation."""
    saved: float = 0.0
    """What all epochs have saved, without what they cost."""


class CostReceipt(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was expected of an epoch that began to save money, and what came of it, in tokens sent anew."""

    epoch: int
    """Where it began: how many entries there were."""
    at: int
    reason: str
    before: int
    """Tokens of the request without it."""
    after: int
    """Tokens of the request with it."""
    carried: float
    """What had been spent on carrying since the last one."""
    predicted: float
    """What the summary call and the first request were expected to cost."""
    actual: float | None = None
    """What they did cost, by what the provider reported; None before that."""
    ratios: Ratios
    """What was paid; `ratios.unit` is US dollars for a token sent anew."""
    calls_before: int = 0
    """Model calls of the conversation before it began …"""
    saved_before: float = 0.0
    """… and what all epochs had saved by then."""
    calls: int = 0
    """Model calls that it has had, as far as is known …"""
    saved: float = 0.0
    """… and what these have saved on carrying, without what it cost."""

    @property
    def spared(self) -> int:
        """Tokens that each of its calls is shorter."""
        return max(0, self.before - self.after)

    def dollars(self, tokens: float | None) -> float | None:
        """What so many tokens sent anew cost in US dollars; None if nobody knows."""
        return None if tokens is None or self.ratios.unit is None else tokens * self.ratios.unit


def complete_receipts(records: Iterable[CostReceipt], meter: Meter | None) -> list[CostReceipt]:
    """Return the receipts of a conversation, oldest first, each with its calls and savings so far."""
    newest = {receipt.epoch: receipt for receipt in records}
    receipts = [newest[epoch] for epoch in sorted(newest)]
    completed = []
    for i, receipt in enumerate(receipts):
        calls, saved = (meter.calls, meter.saved) if meter is not None else (0, 0.0)
        if i + 1 < len(receipts):
            calls, saved = receipts[i + 1].calls_before, receipts[i + 1].saved_before
        own = {"calls": max(0, calls - receipt.calls_before), "saved": max(0.0, saved - receipt.saved_before)}
        completed.append(msgspec.structs.replace(receipt, **own))
    return completed


NEAR_RATIO = 1.2
"""A card is asked for at this share of the price. It is above 1, since many conversations end before it would pay."""
CARD_TOKENS = 150
"""Tokens of a card that catches up, roughly …"""
CARD_REQUEST_TOKENS = 100
"""… and of what asks for one."""


class CostComparison(msgspec.Struct, frozen=True):
    """What going on and a new epoch cost, by which the balance rule decides."""

    carried: float
    """With the next call."""
    price: float
    """What a new epoch costs more than to go on."""
    predicted: float
    """What its summary call and its first request cost."""
    rate: float
    """What carrying a token costs with the next call."""

    @property
    def due(self) -> bool:
        return self.carried >= self.price

    @property
    def near(self) -> bool:
        """Whether an epoch should end as soon as there is a card."""
        return self.carried >= NEAR_RATIO * self.price


def compare_costs(
    ratio: Ratios,
    *,
    warm: bool,
    carried: float,
    preamble: int,
    head: int,
    old: int,
    recent: int,
    new: int,
    length: int,
    card: bool = False,
) -> CostComparison:
    """Apply the balance rule: compare the cost of going on with that of a new epoch.

    All numbers are tokens: `preamble`, `head` (the present summary), `old` (what a new summary would replace), `recent`
    (what stays and was sent before), `new` (what was not sent before) and `length` (of the new summary). With `card`
    the new epoch needs no summary call, because a card inside an answer replaces it.
    """
    rate = ratio.read if warm else ratio.write
    first = ratio.read * preamble + ratio.write * (length + recent + new)
    usual = rate * (preamble + head + old + recent) + ratio.write * new
    if card:
        call = least = CARD_REQUEST_TOKENS + ratio.output * CARD_TOKENS
    else:
        # The summary call reads what the next request would have read, so only what is sent twice costs more.
        call = rate * (preamble + head + old) + PROMPT_TOKENS + ratio.output * length
        least = ratio.output * length
    predicted = first if card else call + first
    return CostComparison(carried + rate * old, max(call + first - usual, least), predicted, rate)

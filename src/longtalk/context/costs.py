"""The cost of resending a conversation, and the cost and savings of each new epoch.

Costs are counted in uncached input tokens: such a token costs 1, a token read from the cache `Ratios.read`, and so on.
These units work at any price, and also if no price is known.

Resending a token costs a cache read with each call, or a cache write if the cache has expired. A new epoch costs the
call for a summary, and cache writes for its head and the exchanges that it keeps. By the balance rule, a new epoch
begins when the total spent on resending what a summary could replace has reached the cost of the new epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from longtalk.memory.summary import PROMPT_TOKENS
from longtalk.usage import Usage

if TYPE_CHECKING:
    from longtalk.models.call_cost import Prices

CACHE_SECONDS = 300
"""The assumed number of seconds for which a provider caches the beginning of a request, if it is unknown."""


_LASTING = 2.0
"""How often text must be recalled in an epoch to be needed in one turn of the next."""
RECALL_SHARE = 0.06
"""The share of the cost of a conversation that recall may add to it; a question gets some tokens in any case."""


class Ratios(msgspec.Struct, frozen=True):
    """The costs of tokens, relative to an uncached input token."""

    read: float = 0.1
    write: float = 1.25
    output: float = 5.0
    unit: float | None = None
    """The price of an uncached input token in US dollars; None if it is unknown."""

    def weigh(self, usage: Usage) -> float:
        """Return the cost of a model call, in uncached input tokens."""
        uncached = max(0, usage.input - usage.cached - usage.written)
        return uncached + self.read * usage.cached + self.write * usage.written + self.output * usage.output


def compute_ratios(prices: Prices | None, tokens: int, *, caches: bool) -> Ratios:
    """Return the ratios for a request of this many tokens; the usual ratios if no price is known.

    A free model gets the usual ratios too, because tokens that cost no money still cost time.
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
    """The total spent on resending older exchanges, up to a model call."""

    epoch: int
    """The start of the epoch that the call belongs to."""
    model: str
    preamble: str
    size: int
    """The number of entries at the time of the call."""
    at: int = 0
    """The time of the answer, in milliseconds since 1970."""
    carried: float = 0.0
    """The amount spent in this epoch on resending exchanges that a summary could replace."""
    calls: int = 0
    """The number of model calls of the whole conversation."""
    saved: float = 0.0
    """The total savings of all epochs, before subtracting their costs."""
    spent: float = 0.0
    """The total cost of all calls of the whole conversation, as far as the provider reported their tokens."""
    recalled: float = 0.0
    """The part of it that was spent on recalled text."""
    ratios: Ratios | None = None
    """The relative costs of the call; None in a record, which has no use for them."""
    carriage: float = 0.0
    """What it has cost to send one more token with each call of this epoch."""

    def add_call(self, usage: Usage, recalled: int) -> Meter:
        """Return the meter with a call that was made, of which `recalled` tokens were recalled for it."""
        cost = 0.0 if self.ratios is None else self.ratios.weigh(usage)
        return msgspec.structs.replace(self, spent=self.spent + cost, recalled=self.recalled + recalled, ratios=None)

    def compute_promotion_turns(self, write: float) -> float:
        """Return the number of turns above which text that was recalled in this epoch is promoted to the next head.

        Recalling it has cost its whole length in each of these turns. In the head, it costs `write` for each token
        once, and then what is paid for resending the head. What stands out in one epoch is needed less in the next, so
        twice as many turns are wanted.
        """
        return max(1.0, _LASTING * (write + self.carriage))

    def compute_credit(self, conversation: int) -> float:
        """Return the number of tokens that may still be recalled, so that recall costs only a share of everything.

        `conversation` is the length of the whole conversation in tokens. Where no cost is known, because the
        conversation was imported, each of them counts twice: as part of an answer or of a message, and sent again.
        """
        return RECALL_SHARE * max(self.spent - self.recalled, 2 * conversation) - self.recalled


class CostReceipt(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The expected and the actual cost and savings of an epoch that began to save money, in uncached input tokens."""

    epoch: int
    """The start of the epoch: the number of entries before it."""
    at: int
    reason: str
    before: int
    """The tokens of the next request without the new epoch."""
    after: int
    """The tokens of the next request with the new epoch."""
    carried: float
    """The amount spent on resending older exchanges since the previous epoch."""
    predicted: float
    """The expected cost of the summary call and the first request."""
    actual: float | None = None
    """The actual cost of both, from the provider's report; None until the provider has reported it."""
    ratios: Ratios
    """The relative costs of tokens; `ratios.unit` is the price of an uncached input token in US dollars."""
    calls_before: int = 0
    """The number of model calls of the conversation before the epoch began."""
    saved_before: float = 0.0
    """The savings of all earlier epochs."""
    calls: int = 0
    """The number of model calls in this epoch so far."""
    saved: float = 0.0
    """The savings of these calls, before subtracting the cost of the epoch."""

    @property
    def spared(self) -> int:
        """The number of tokens by which each request of the epoch is shorter."""
        return max(0, self.before - self.after)

    def dollars(self, tokens: float | None) -> float | None:
        """Return the price of this many uncached input tokens in US dollars; None if it is unknown."""
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
"""The multiple of a new epoch's price at which a memory card is requested.

It is above 1, because many conversations end before a card would pay off.
"""
CARD_TOKENS = 150
"""The approximate number of tokens of a card that covers several exchanges."""
CARD_REQUEST_TOKENS = 100
"""The approximate number of tokens of the request for a card."""


class CostComparison(msgspec.Struct, frozen=True):
    """The costs of continuing and of a new epoch, which the balance rule compares."""

    carried: float
    """The amount spent on resending older exchanges, including the next call."""
    price: float
    """The extra cost of a new epoch, compared with continuing."""
    predicted: float
    """The cost of the new epoch's summary call and first request."""
    rate: float
    """The cost of resending one token with the next call."""

    @property
    def due(self) -> bool:
        return self.carried >= self.price

    @property
    def near(self) -> bool:
        """Whether a memory card should be requested now, so that the epoch can end when the card arrives."""
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
    """Compare the cost of continuing with the cost of a new epoch, by the balance rule.

    All numbers are tokens: `preamble`, `head` (the present summary), `old` (exchanges that a new summary would
    replace), `recent` (exchanges that are kept and were sent before), `new` (entries that were not sent before) and
    `length` (of the new summary). With `card` the new epoch needs no summary call, because a card inside an answer
    replaces it.
    """
    rate = ratio.read if warm else ratio.write
    first = ratio.read * preamble + ratio.write * (length + recent + new)
    usual = rate * (preamble + head + old + recent) + ratio.write * new
    if card:
        call = least = CARD_REQUEST_TOKENS + ratio.output * CARD_TOKENS
    else:
        # The summary call reads the same cache as the next request would, so only the tokens that are sent twice cost
        # extra.
        call = rate * (preamble + head + old) + PROMPT_TOKENS + ratio.output * length
        least = ratio.output * length
    predicted = first if card else call + first
    return CostComparison(carried + rate * old, max(call + first - usual, least), predicted, rate)

"""The cost of a model call: the numbers of tokens that the provider reported, multiplied by their prices.

Prices are in US dollars per million tokens, as the provider publishes them. An unknown price is None, and so is every
cost that depends on it: a cost is never a guess, and zero means that something is known to be free. The prices of the
known models are in `data/prices_and_limits.json.gz`, which `tools/registry.py` builds.

A cost covers tokens only. Searches and other tools that the provider runs, seconds of audio, and contract discounts are
not included. Costs are computed and added as decimals and returned as the nearest float, without any other rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec

from longtalk.errors import InputError

if TYPE_CHECKING:
    from longtalk.usage import Usage

TTL: TypeAlias = Literal["5m", "1h"]
"""How long a provider keeps a cached prefix: five minutes or one hour."""

Price: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
"""A price in US dollars per million tokens."""


class Rates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Prices in US dollars per million tokens sent, received, read from the cache or written to it; None if unknown."""

    input: Price
    output: Price
    cache_read: Price | None = None
    cache_write: Price | None = None
    """The price for tokens that the cache keeps for five minutes, or for as long as the provider decides."""
    cache_write_1h: Price | None = None
    """The price for tokens that the cache keeps for an hour."""


class Tier(Rates, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The prices that apply to all tokens of a call if its request has more than `above` tokens."""

    above: Annotated[int, msgspec.Meta(ge=1)]


class Prices(Rates, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The prices of a model, with tiers that set different prices for long requests."""

    tiers: tuple[Tier, ...] = ()

    def get_rates(self, tokens: int) -> Rates:
        """Return the prices that apply to a request of this many tokens."""
        tiers = [tier for tier in self.tiers if tokens > tier.above]
        return max(tiers, key=lambda tier: tier.above) if tiers else self

    @property
    def free(self) -> bool:
        """Whether every price is zero or unknown, for requests of any length."""
        return not any(
            rates.input or rates.output or rates.cache_read or rates.cache_write or rates.cache_write_1h
            for rates in (self, *self.tiers)
        )


FREE = Prices(input=0, output=0, cache_read=0, cache_write=0, cache_write_1h=0)
"""The prices of a model that runs on this machine."""


class Cost(msgspec.Struct, frozen=True):
    """The cost of a call in US dollars: for uncached input, for cache reads and writes, and for output."""

    input: float = 0.0
    cached: float = 0.0
    written: float = 0.0
    output: float = 0.0

    @property
    def total(self) -> float:
        return add_dollars((self.input, self.cached, self.written, self.output))


def cost(usage: Usage, prices: Prices | None, *, ttl: TTL = "5m") -> Cost | None:
    """Return the cost of one model call; None if a price is unknown or the usage contradicts itself.

    `usage` must be that of a single call, because the length of the request decides which tier applies. With
    `ttl="1h"`, all tokens written to the cache are billed as kept for an hour, even if `usage` does not say so.
    """
    if ttl not in ("5m", "1h"):
        raise InputError(f"`ttl` must be '5m' or '1h', not {ttl!r}.")
    if prices is None:
        return None
    written_1h = usage.written if ttl == "1h" else usage.written_1h
    uncached = usage.input - usage.cached - usage.written
    counts = (uncached, usage.cached, usage.written - written_1h, written_1h, usage.output)
    if min(counts) < 0:
        return None
    rates = prices.get_rates(usage.input)
    unit_prices = (rates.input, rates.cache_read, rates.cache_write, rates.cache_write_1h, rates.output)
    parts = [_to_dollars(count, price) for count, price in zip(counts, unit_prices, strict=True)]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    sent, cached, written_cost, written_1h_cost, received = known
    return Cost(sent, cached, add_dollars((written_cost, written_1h_cost)), received)


def adjust_prices(prices: Prices | None, options: Mapping[str, Any]) -> Prices | None:
    """Return the prices for a call with these request options; None if an option may change the prices.

    The options in question are `service_tier`, `speed` and `inference_geo`.
    """
    standard_values = (None, "auto", "default", "standard", "standard_only", "global")
    return (
        prices
        if all(options.get(name) in standard_values for name in ("service_tier", "speed", "inference_geo"))
        else None
    )


def add_costs(costs: Iterable[Cost | None]) -> Cost | None:
    """Return the sum of several costs; None (unknown) if any of them is None."""
    all_costs = list(costs)
    known = [cost for cost in all_costs if cost is not None]
    if len(known) < len(all_costs):
        return None
    return Cost(*(add_dollars(getattr(cost, name) for cost in known) for name in Cost.__struct_fields__))


def _to_dollars(tokens: int, price: float | None) -> float | None:
    """Return the cost of this many tokens in dollars: 0 for no tokens, else None if the price is unknown."""
    if not tokens:
        return 0.0
    if price is None:
        return None
    from decimal import Decimal

    return float(Decimal(repr(price)) * tokens / 1_000_000)


def add_dollars(parts: Iterable[float]) -> float:
    """Return the sum of amounts in dollars, added as decimals so that 0.1 and 0.2 give 0.3."""
    from decimal import Decimal

    return float(sum(Decimal(repr(part)) for part in parts))

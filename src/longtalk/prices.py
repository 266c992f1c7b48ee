"""What a model call costs: the tokens that its provider reported, times what they cost.

Prices are US dollars for a million tokens, as the provider states them. A price that nobody knows is None, and what
depends on it is None too: a cost is never a guess, and zero is only what is known to be free.

A cost is of tokens. What else a provider bills is not in it: searches and other tools that it runs, seconds of audio,
discounts of a contract. Costs are worked out and added in decimals, and are the nearest floats to that: nothing else
is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec

from longtalk.errors import InputError

if TYPE_CHECKING:
    from longtalk.wires.base import Usage

TTL: TypeAlias = Literal["5m", "1h"]
"""For how long a provider keeps what it writes to its cache."""

Price: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
"""US dollars for a million tokens."""


class Rates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What tokens cost: those sent, those received, and those read from and written to a cache."""

    input: Price
    output: Price
    cache_read: Price | None = None
    cache_write: Price | None = None
    """For five minutes, or for as long as the provider decides."""
    cache_write_1h: Price | None = None
    """For an hour."""


class Tier(Rates, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What all tokens of a call cost whose request has more than so many."""

    above: Annotated[int, msgspec.Meta(ge=1)]


class Prices(Rates, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a model costs. A long request may cost more, for each of its tokens."""

    tiers: tuple[Tier, ...] = ()

    def rates(self, tokens: int) -> Rates:
        """What holds for a request of so many tokens."""
        above = [tier for tier in self.tiers if tokens > tier.above]
        return max(above, key=lambda tier: tier.above) if above else self

    @property
    def free(self) -> bool:
        """Whether nothing costs anything, whatever is sent."""
        each = (self, *self.tiers)
        return not any(
            rates.input or rates.output or rates.cache_read or rates.cache_write or rates.cache_write_1h
            for rates in each
        )


FREE = Prices(input=0, output=0, cache_read=0, cache_write=0, cache_write_1h=0)
"""Of a model that runs on this machine."""


class Cost(msgspec.Struct, frozen=True):
    """US dollars: for what was sent anew, read from a cache, written to it, and received."""

    input: float = 0.0
    cached: float = 0.0
    written: float = 0.0
    output: float = 0.0

    @property
    def total(self) -> float:
        return summed((self.input, self.cached, self.written, self.output))


def cost(usage: Usage, prices: Prices | None, *, ttl: TTL = "5m") -> Cost | None:
    """What one model call costs; None when a price that it takes is not known, or the report can't be true.

    `usage` is of one call: the length of its request decides about the tier. `ttl` is for how long the cache keeps what
    was written, where the report does not say so.
    """
    if ttl not in ("5m", "1h"):
        raise InputError(f"`ttl` is '5m' or '1h', not {ttl!r}.")
    if prices is None:
        return None
    hour = usage.written if ttl == "1h" else usage.written_1h
    anew = usage.input - usage.cached - usage.written
    counts = (anew, usage.cached, usage.written - hour, hour, usage.output)
    if min(counts) < 0:
        return None
    rates = prices.rates(usage.input)
    dear = (rates.input, rates.cache_read, rates.cache_write, rates.cache_write_1h, rates.output)
    parts = [_dollars(count, price) for count, price in zip(counts, dear, strict=True)]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    sent, cached, written, written_1h, received = known
    return Cost(sent, cached, summed((written, written_1h)), received)


def with_options(prices: Prices | None, options: Mapping[str, Any]) -> Prices | None:
    """What a call with these options costs: None where one of them has its own price."""
    usual = (None, "auto", "default", "standard", "standard_only", "global")
    return prices if all(options.get(name) in usual for name in ("service_tier", "speed", "inference_geo")) else None


def total(costs: Iterable[Cost | None]) -> Cost | None:
    """The sum of costs; None when one of them is not known."""
    known = list(costs)
    each = [one for one in known if one is not None]
    if len(each) < len(known):
        return None
    return Cost(*(summed(getattr(one, name) for one in each) for name in Cost.__struct_fields__))


def _dollars(tokens: int, price: float | None) -> float | None:
    """None where something was used whose price is not known."""
    if not tokens:
        return 0.0
    if price is None:
        return None
    from decimal import Decimal

    return float(Decimal(repr(price)) * tokens / 1_000_000)


def summed(parts: Iterable[float]) -> float:
    """A sum of dollars as they are shown: 0.1 and 0.2 are 0.3."""
    from decimal import Decimal

    return float(sum(Decimal(repr(part)) for part in parts))

"""Keep the last exchanges, or the last messages."""

from __future__ import annotations

import msgspec

from longtalk.policies.base import Compactor
from longtalk.policies.drop_oldest import DropOldest
from longtalk.policies.limits import OverExchanges, OverMessages, at_least_one, target


class KeepLast(msgspec.Struct, frozen=True):
    """At most the last `limit` exchanges are sent, the current one included, each whole.

    When there are more, the oldest are left out until `to` are left, half of the limit unless told otherwise: cutting
    deep and seldom keeps the provider's cache. `sliding=True` always keeps exactly the last `limit`; the whole request
    is then billed anew each turn.
    """

    limit: int
    to: int | None = None
    sliding: bool = False

    def __post_init__(self) -> None:
        at_least_one(self.limit, "The number of exchanges that are kept")
        target(self.limit, self.to, sliding=self.sliding)

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        to = target(self.limit, self.to, sliding=self.sliding)
        return (Compactor(OverExchanges(self.limit), (DropOldest(),), OverExchanges(to)),)


class KeepMessages(msgspec.Struct, frozen=True):
    """At most `limit` messages are sent, tool results and events counted, in whole exchanges. As `KeepLast` otherwise.

    The current exchange stays also when it alone has more.
    """

    limit: int
    to: int | None = None
    sliding: bool = False

    def __post_init__(self) -> None:
        at_least_one(self.limit, "The number of messages that are kept")
        target(self.limit, self.to, sliding=self.sliding)

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        to = target(self.limit, self.to, sliding=self.sliding)
        return (Compactor(OverMessages(self.limit), (DropOldest(),), OverMessages(to)),)

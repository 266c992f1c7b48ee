"""`KeepLast` and `KeepMessages`: send only the last exchanges, or only the last messages."""

from __future__ import annotations

import msgspec

from longtalk.policies.base import Compactor
from longtalk.policies.drop_oldest import DropOldest
from longtalk.policies.limits import OverExchanges, OverMessages, check_positive, resolve_target


class KeepLast(msgspec.Struct, frozen=True):
    """A policy that sends at most the last `limit` exchanges, including the current one, each as a whole.

    When there are more, the oldest are left out until `to` remain (by default half of `limit`): with large but rare
    cuts, most requests can use the provider's cache. With `sliding=True` exactly the last `limit` are kept, but then
    every request is billed in full, because its beginning changes with each turn.
    """

    limit: int
    to: int | None = None
    sliding: bool = False

    def __post_init__(self) -> None:
        check_positive(self.limit, "`limit` of KeepLast, a number of exchanges,")
        resolve_target(self.limit, self.to, sliding=self.sliding)

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        to = resolve_target(self.limit, self.to, sliding=self.sliding)
        return (Compactor(OverExchanges(self.limit), (DropOldest(),), OverExchanges(to)),)


class KeepMessages(msgspec.Struct, frozen=True):
    """A policy that sends at most `limit` messages, in whole exchanges. Tool results and events count as messages.

    The current exchange is kept even if it alone has more than `limit` messages. `to` and `sliding` mean the same as
    for `KeepLast`.
    """

    limit: int
    to: int | None = None
    sliding: bool = False

    def __post_init__(self) -> None:
        check_positive(self.limit, "`limit` of KeepMessages, a number of messages,")
        resolve_target(self.limit, self.to, sliding=self.sliding)

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        to = resolve_target(self.limit, self.to, sliding=self.sliding)
        return (Compactor(OverMessages(self.limit), (DropOldest(),), OverMessages(to)),)

"""Triggers: limits on the size of a request, and `AnyOf` and `AllOf` to combine them.

A trigger also serves as a target: strategies are applied until it no longer fires.
"""

from __future__ import annotations

import msgspec

from longtalk.errors import InputError
from longtalk.policies.base import Size, Trigger


class OverExchanges(msgspec.Struct, frozen=True):
    """A trigger that fires when a request has more than `limit` exchanges, including the current one."""

    limit: int

    def __post_init__(self) -> None:
        check_positive(self.limit, "`limit` of OverExchanges, a number of exchanges,")

    def fires(self, size: Size) -> bool:
        return size.exchanges > self.limit

    def __str__(self) -> str:
        return f"over {self.limit:,} exchange{'s' * (self.limit != 1)}"


class OverMessages(msgspec.Struct, frozen=True):
    """A trigger that fires when a request has more than `limit` messages. Tool results and events count as messages."""

    limit: int

    def __post_init__(self) -> None:
        check_positive(self.limit, "`limit` of OverMessages, a number of messages,")

    def fires(self, size: Size) -> bool:
        return size.messages > self.limit

    def __str__(self) -> str:
        return f"over {self.limit:,} message{'s' * (self.limit != 1)}"


class OverTokens(msgspec.Struct, frozen=True):
    """A trigger that fires when the whole request has more than `limit` tokens."""

    limit: int

    def __post_init__(self) -> None:
        check_positive(self.limit, "`limit` of OverTokens, a number of tokens,")

    def fires(self, size: Size) -> bool:
        return size.tokens > self.limit

    def __str__(self) -> str:
        return f"over {self.limit:,} token{'s' * (self.limit != 1)}"


class OverWindow(msgspec.Struct, frozen=True):
    """A trigger that fires when the request takes up more than the fraction `share` of the model's window."""

    share: float

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 < self.share <= 1:
            raise InputError(f"`share` of the window must be a number above 0 and at most 1, not {self.share!r}.")

    def fires(self, size: Size) -> bool:
        return size.tokens > self.share * size.window

    def __str__(self) -> str:
        return f"over {self.share:.0%} of the window"


class _TriggerGroup:
    """The common part of `AnyOf` and `AllOf`: a checked list of triggers."""

    def __init__(self, *triggers: Trigger) -> None:
        wrong = [each for each in triggers if isinstance(each, type) or not hasattr(each, "fires")]
        if wrong:
            raise InputError(f"{type(self).__name__} takes triggers such as OverTokens(8_000), not {wrong[0]!r}.")
        if not triggers:
            raise InputError(f"{type(self).__name__} needs at least one trigger, such as OverTokens(8_000).")
        self.triggers = triggers

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.triggers))})"


class AnyOf(_TriggerGroup):
    """A trigger that fires when at least one of the given triggers fires."""

    def fires(self, size: Size) -> bool:
        return any(trigger.fires(size) for trigger in self.triggers)

    def __str__(self) -> str:
        return " or ".join(map(str, self.triggers))


class AllOf(_TriggerGroup):
    """A trigger that fires when all of the given triggers fire."""

    def fires(self, size: Size) -> bool:
        return all(trigger.fires(size) for trigger in self.triggers)

    def __str__(self) -> str:
        return " and ".join(map(str, self.triggers))


def check_positive(value: object, subject: str) -> None:
    """Raise an `InputError` whose message begins with `subject` unless the value is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{subject} must be an integer of at least 1, not {value!r}.")


def resolve_target(limit: int, to: int | None, *, sliding: bool) -> int:
    """Return the size to cut to: `to` if given, else `limit` if `sliding`, else half of `limit`.

    Raises `InputError` if `to` is not an integer from 1 to `limit`, or if `to` and `sliding` are both given.
    """
    if to is None:
        return limit if sliding else max(1, limit // 2)
    if sliding:
        raise InputError("A sliding window is always cut to its limit: pass either `to` or `sliding=True`, not both.")
    check_positive(to, "`to`")
    if to > limit:
        raise InputError(f"`to` is the size after a cut, so it must be at most the limit of {limit}, not {to}.")
    return to

"""Triggers: a limit each, and two ways to combine them.

A trigger also serves as a target: what is aimed at is that it does not fire any more.
"""

from __future__ import annotations

import msgspec

from longtalk.errors import InputError
from longtalk.policies.base import Size, Trigger


class OverExchanges(msgspec.Struct, frozen=True):
    """Fires at more exchanges than this, the current one included."""

    limit: int

    def __post_init__(self) -> None:
        at_least_one(self.limit, "A number of exchanges")

    def fires(self, size: Size) -> bool:
        return size.exchanges > self.limit

    def __str__(self) -> str:
        return f"over {self.limit:,} exchange{'s' * (self.limit != 1)}"


class OverMessages(msgspec.Struct, frozen=True):
    """Fires at more messages than this. Tool results and events count as messages."""

    limit: int

    def __post_init__(self) -> None:
        at_least_one(self.limit, "A number of messages")

    def fires(self, size: Size) -> bool:
        return size.messages > self.limit

    def __str__(self) -> str:
        return f"over {self.limit:,} message{'s' * (self.limit != 1)}"


class OverTokens(msgspec.Struct, frozen=True):
    """Fires when the whole request has more tokens than this."""

    limit: int

    def __post_init__(self) -> None:
        at_least_one(self.limit, "A number of tokens")

    def fires(self, size: Size) -> bool:
        return size.tokens > self.limit

    def __str__(self) -> str:
        return f"over {self.limit:,} token{'s' * (self.limit != 1)}"


class OverWindow(msgspec.Struct, frozen=True):
    """Fires when the request takes more than this share of the model's window."""

    share: float

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 < self.share <= 1:
            raise InputError(f"A share of the window is a number above 0 and up to 1, not {self.share!r}.")

    def fires(self, size: Size) -> bool:
        return size.tokens > self.share * size.window

    def __str__(self) -> str:
        return f"over {self.share:.0%} of the window"


class _Several:
    def __init__(self, *triggers: Trigger) -> None:
        wrong = [each for each in triggers if isinstance(each, type) or not hasattr(each, "fires")]
        if wrong or not triggers:
            what = f"not {wrong[0]!r}" if wrong else "and at least one of them"
            raise InputError(f"{type(self).__name__} takes triggers such as OverTokens(8_000), {what}.")
        self.triggers = triggers

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.triggers))})"


class AnyOf(_Several):
    """Fires when one of these does."""

    def fires(self, size: Size) -> bool:
        return any(trigger.fires(size) for trigger in self.triggers)

    def __str__(self) -> str:
        return " or ".join(map(str, self.triggers))


class AllOf(_Several):
    """Fires when all of these do."""

    def fires(self, size: Size) -> bool:
        return all(trigger.fires(size) for trigger in self.triggers)

    def __str__(self) -> str:
        return " and ".join(map(str, self.triggers))


def at_least_one(value: object, what: str) -> None:
    """Raise `InputError` unless this is a whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{what} is a whole number, 1 or more, not {value!r}.")


def target(limit: int, to: int | None, *, sliding: bool) -> int:
    """Where a cut ends: at half of the limit unless told otherwise; a sliding window is cut as little as possible."""
    if to is None:
        return limit if sliding else max(1, limit // 2)
    if sliding:
        raise InputError("A sliding window is always cut to its limit: give `to` or `sliding`, not both.")
    at_least_one(to, "`to`")
    if to > limit:
        raise InputError(f"`to` is what a cut leaves, so at most the limit of {limit}, not {to}.")
    return to

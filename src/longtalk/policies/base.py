"""The parts of a policy: a trigger says when, a strategy how, a compactor is both.

A policy is any value that has `compactors`. Before each model call, and after each turn, their triggers look at how
long the request is. If one fires, a new epoch begins: the strategies take turns at the view of the conversation until
the compactor's target holds, and every limit is looked at again. Inside an epoch nothing is taken away, so each
request begins with the one before it, and the provider reads all but the new part from its cache.

A trigger's or strategy's `repr` is part of the policy's fingerprint: make them values (a frozen Struct or dataclass),
so that it says what they do and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from longtalk.errors import InputError
from longtalk.policies.view import View


class Size(Protocol):
    """How long a request is. What is asked for is counted, and nothing else."""

    @property
    def exchanges(self) -> int:
        """With the current one."""
        ...

    @property
    def loose(self) -> int:
        """Those that may go: neither pinned nor the current one."""
        ...

    @property
    def messages(self) -> int:
        """Entries: messages, tool results, events."""
        ...

    @property
    def tokens(self) -> int:
        """Of the whole request: preamble, messages, tail."""
        ...

    @property
    def window(self) -> int:
        """How many tokens the model takes with its answer; 32,000 while nobody knows."""
        ...

    @property
    def history(self) -> int:
        """Tokens of what goes before the current exchange, without the preamble."""
        ...

    def ripe(self, recent: int, length: int) -> bool:
        """Whether carrying on has cost as much as a new epoch on the brief, and that is at hand.

        A head of about so many tokens, and so many of the last exchanges.
        """
        ...

    def due(self, keep: int, length: int) -> bool:
        """Whether carrying on has cost as much as a new epoch: a summary of so many tokens, and the last exchanges."""
        ...


class Trigger(Protocol):
    """When to compact."""

    def fires(self, size: Size) -> bool: ...


class Strategy(Protocol):
    """How to compact."""

    def apply(self, view: View, limits: Compactor) -> View:
        """A shorter view. It need not reach `limits.to`: the next strategy goes on from there."""
        ...


class Compactor(msgspec.Struct, frozen=True):
    """When `over` fires, the strategies are applied in a row until `to` does not fire any more."""

    over: Trigger
    strategies: tuple[Strategy, ...]
    to: Trigger

    def __post_init__(self) -> None:
        if not isinstance(self.strategies, tuple):
            raise InputError(f"`strategies` is a tuple such as (DropOldest(),), not {self.strategies!r}.")
        for needs, values in (("fires", (self.over, self.to)), ("apply", self.strategies)):
            for value in values:
                if isinstance(value, type) or not hasattr(value, needs):
                    what = "trigger such as OverTokens(8_000)" if needs == "fires" else "strategy such as DropOldest()"
                    raise InputError(f"A compactor takes a {what}, with a method `{needs}`, not {value!r}.")

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        return (self,)

    def apply(self, view: View) -> View:
        for strategy in self.strategies:
            if not self.to.fires(view):
                break
            current, view = view.blocks[-1], strategy.apply(view, self)
            if not view.blocks or view.blocks[-1].first != current.first:
                raise InputError(f"The strategy {strategy!r} has left out the current exchange, which has to stay.")
        return view


class Policy(Protocol):
    """What a context keeps."""

    @property
    def compactors(self) -> Sequence[Compactor]: ...

"""The parts of a policy: a trigger says when to compact, a strategy says how, and a compactor combines them.

A policy is any object with a `compactors` property. Before each model call and after each turn, the trigger of each
compactor checks the size of the request. When one fires, a new epoch begins: the compactor's strategies shorten the
view of the conversation, one after the other, until its target is met. Then every limit is checked again. Within an
epoch nothing is removed, so each request begins with the whole previous one, and the provider reads all but the new
part from its cache.

The `repr` of each trigger and strategy is part of the policy's fingerprint. Define them as values (a frozen Struct or
dataclass), so that the `repr` depends on their settings alone.

The rest of the library refers to no policy by name. Triggers and strategies declare what else they need with optional
attributes and methods, which are described at `Trigger`, `Strategy` and `BriefKeeper`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol, cast

import msgspec

from longtalk.errors import InputError
from longtalk.memory.brief.record import BriefRecord, CaptureMode, CardKind
from longtalk.memory.brief.schema import Brief
from longtalk.memory.profile.config import Profile, add_profile_fields
from longtalk.memory.recall.config import Recall
from longtalk.memory.summary import Summary
from longtalk.policies.view import View
from longtalk.tokens import Counter
from longtalk.transcript.transcript import Transcript


class Size(Protocol):
    """The size of a request in several measures. Each is computed only when it is read."""

    @property
    def exchanges(self) -> int:
        """The number of exchanges in the request, including the current one."""
        ...

    @property
    def droppable(self) -> int:
        """The number of exchanges that may be left out because they are neither pinned nor current."""
        ...

    @property
    def messages(self) -> int:
        """The number of entries in the request: messages, tool results and events."""
        ...

    @property
    def tokens(self) -> int:
        """The number of tokens in the whole request: preamble, messages and tail."""
        ...

    @property
    def window(self) -> int:
        """The model's context window in tokens, including the answer; 32,000 if the window is unknown."""
        ...

    @property
    def history(self) -> int:
        """The number of tokens that precede the current exchange, not counting the preamble."""
        ...

    def brief_pays(self, recent: int, length: int) -> bool:
        """Return True if resending the older exchanges has cost about as much as a new epoch based on the brief would.

        The new epoch would begin with a head of about `length` tokens, followed by at most `recent` tokens of the last
        exchanges. As long as the brief does not cover the older exchanges, return False, unless the model has
        repeatedly failed to send a card.
        """
        ...

    def summary_pays(self, keep: int, length: int) -> bool:
        """Return True if resending the older exchanges has cost as much as a new epoch based on a summary would.

        The new epoch would begin with a summary of `length` tokens, followed by the last `keep` exchanges.
        """
        ...


class Trigger(Protocol):
    """A condition that says when a request must be made shorter.

    A trigger that compares costs (`size.summary_pays`, `size.brief_pays`) has an attribute `compares_costs = True`.
    Such a trigger is checked before each model call, even if another trigger fires first. Each epoch that it begins
    gets a receipt, which compares the predicted cost with the actual one.
    """

    def fires(self, size: Size) -> bool:
        """Return True if a request of this size is too long."""
        ...


class Strategy(Protocol):
    """A way to make a request shorter.

    A strategy that requests summaries has an attribute `background`: True if they are written after an answer, False if
    they are written before the next call. A strategy that shortens the current exchange has `cuts_current = True`. It
    is not applied after an answer, because the next turn may leave out the whole exchange instead. With
    `refuses_overflow = True` it raises an error, and requests are not cut to the model's window either.
    """

    def apply(self, view: View, limits: Compactor) -> View:
        """Return a shorter view, if possible one that meets the target `limits.to`.

        If the target is not met, the compactor passes the view on to its next strategy.
        """
        ...


class Compactor(msgspec.Struct, frozen=True):
    """One rule of a policy: when `over` fires, the strategies are applied in order until `to` no longer fires."""

    over: Trigger
    strategies: tuple[Strategy, ...]
    to: Trigger

    def __post_init__(self) -> None:
        if not isinstance(self.strategies, tuple):
            raise InputError(f"`strategies` must be a tuple such as (DropOldest(),), not {self.strategies!r}.")
        for method, values in (("fires", (self.over, self.to)), ("apply", self.strategies)):
            for value in values:
                if isinstance(value, type) or not hasattr(value, method):
                    what = "trigger such as OverTokens(8_000)" if method == "fires" else "strategy such as DropOldest()"
                    raise InputError(f"A compactor takes a {what} that has a method `{method}`, not {value!r}.")

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        """A tuple with only this compactor, so that a compactor can be used as a policy."""
        return (self,)

    def apply(self, view: View) -> View:
        """Return the view after applying the strategies, in order, until the target `to` is met or no strategy remains.

        Raises `InputError` if a strategy removes the current exchange.
        """
        for strategy in self.strategies:
            if not self.to.fires(view):
                break
            current, view = view.blocks[-1], strategy.apply(view, self)
            if not view.blocks or view.blocks[-1].first != current.first:
                raise InputError(f"The strategy {strategy!r} left out the current exchange, which must be kept.")
        return view


class BriefKeeper(Strategy, Protocol):
    """A strategy that keeps a brief: lines that model and app maintain, and that replace older exchanges.

    A strategy that also keeps a profile of the owner has an attribute `profile` with its configuration.
    """

    @property
    def brief(self) -> Brief:
        """The configuration of the brief."""
        ...

    @property
    def recalls(self) -> Recall:
        """The configuration of recall."""
        ...

    @property
    def capture(self) -> CaptureMode:
        """How the model reports lines for the brief, unless the conversation has switched to the other capture mode."""
        ...

    @property
    def instruction(self) -> str:
        """The text that asks the model for lines for the brief; empty for the default text."""
        ...

    @property
    def example(self) -> str:
        """The memory card that the model is shown as an example; empty for the default one."""
        ...

    def needs_new_head(
        self,
        head: Summary | None,
        transcript: Transcript,
        counter: Counter,
        other_texts: Sequence[str] = (),
        *,
        leaves_out: bool = False,
    ) -> bool:
        """Return True if the request needs a new head because the present one lacks lines or has outdated ones."""
        ...

    def with_current_brief(self, view: View) -> View:
        """Return the view with a head that contains the current brief."""
        ...

    def choose_card(self, record: BriefRecord, *, near: bool, history: int, raw: int, current: int) -> CardKind:
        """Return which memory card to request with the next call; an empty string for none."""
        ...


def get_profile(keeper: BriefKeeper | None) -> Profile | None:
    """Return the configuration of the owner's profile that a strategy keeps; None if it keeps none."""
    return getattr(keeper, "profile", None)


def make_card_config(keeper: BriefKeeper) -> Brief:
    """Return the brief of a strategy as memory cards see it: with the fields of the profile."""
    return add_profile_fields(keeper.brief, get_profile(keeper))


class Policy(Protocol):
    """A rule that decides which part of a conversation is sent to the model."""

    @property
    def compactors(self) -> Sequence[Compactor]:
        """The compactors that are checked before each model call and after each turn."""
        ...


class Rules(msgspec.Struct, frozen=True):
    """A policy with the values that are derived from it, computed once. It can be used as a policy itself."""

    policy: Policy
    compactors: tuple[Compactor, ...]
    keeper: BriefKeeper | None
    """The strategy that keeps a brief; None if there is none."""
    fingerprint: str


def read_rules(policy: Policy) -> Rules:
    """Return the rules of a policy: the policy itself, and the values that are derived from it."""
    if type(policy) is Rules:
        return policy
    return Rules(policy, tuple(policy.compactors), find_brief_keeper(policy), fingerprint_policy(policy))


def fingerprint_policy(policy: Policy) -> str:
    """Return a digest of a policy and its settings."""
    if type(policy) is Rules:
        return policy.fingerprint
    return hashlib.sha256(repr(policy).encode("utf-8", "replace")).hexdigest()[:16]


def find_brief_keeper(policy: Policy) -> BriefKeeper | None:
    """Return the strategy of a policy that keeps a brief, or None if it has none."""
    if type(policy) is Rules:
        return policy.keeper
    for compactor in policy.compactors:
        for strategy in compactor.strategies:
            if hasattr(strategy, "needs_new_head"):
                return cast("BriefKeeper", strategy)
    return None

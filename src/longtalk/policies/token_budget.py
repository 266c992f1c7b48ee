"""Keep a request within a number of tokens, or within a share of the model's window."""

from __future__ import annotations

import msgspec

from longtalk.errors import InputError
from longtalk.policies.base import Compactor, Trigger
from longtalk.policies.cut_current import CutCurrent
from longtalk.policies.digest_tools import DigestTools
from longtalk.policies.drop_oldest import DropOldest
from longtalk.policies.limits import OverTokens, OverWindow, at_least_one, target


class TokenBudget(msgspec.Struct, frozen=True):
    """A request has at most `limit` tokens, preamble included.

    When it would have more, the oldest exchanges are left out until it has `to`, half of the limit unless told
    otherwise. `digest=DigestTools()` first puts the work of older tools into a line each. If the current exchange alone
    is too long, its tool results and events are cut to head and tail; what the user said never is.
    """

    limit: int
    to: int | None = None
    sliding: bool = False
    digest: DigestTools | None = None

    def __post_init__(self) -> None:
        at_least_one(self.limit, "A budget of tokens")
        target(self.limit, self.to, sliding=self.sliding)
        _check_digest(self.digest)

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        to = target(self.limit, self.to, sliding=self.sliding)
        return (within(OverTokens(self.limit), OverTokens(to), self.digest),)


class WindowShare(msgspec.Struct, frozen=True):
    """A request takes at most this share of the model's window; a cut leaves `to`, half of it unless told otherwise.

    As `TokenBudget` otherwise.
    """

    share: float = 0.8
    to: float | None = None
    digest: DigestTools | None = None

    def __post_init__(self) -> None:
        OverWindow(self.share)
        if self.to is not None and OverWindow(self.to).share > self.share:
            raise InputError(f"`to` is what a cut leaves, so at most {self.share} of the window, not {self.to}.")
        _check_digest(self.digest)

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        to = self.share / 2 if self.to is None else self.to
        return (within(OverWindow(self.share), OverWindow(to), self.digest),)


def within(over: Trigger, to: Trigger, digest: DigestTools | None = None) -> Compactor:
    """A compactor that reaches its target by whatever it takes."""
    first = () if digest is None else (digest,)
    return Compactor(over, (*first, DropOldest(), CutCurrent()), to)


def _check_digest(digest: object) -> None:
    if digest is not None and not isinstance(digest, DigestTools):
        raise InputError(f"`digest` is DigestTools() or None, not {digest!r}.")

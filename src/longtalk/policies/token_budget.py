"""`TokenBudget` and `WindowShare`: limit requests to a number of tokens, or to a share of the model's window."""

from __future__ import annotations

import msgspec

from longtalk.errors import InputError
from longtalk.policies.base import Compactor, Trigger
from longtalk.policies.cut_current import CutCurrent
from longtalk.policies.digest_tools import DigestTools
from longtalk.policies.drop_oldest import DropOldest
from longtalk.policies.limits import OverTokens, OverWindow, check_positive, resolve_target


class TokenBudget(msgspec.Struct, frozen=True):
    """A policy that limits requests to `limit` tokens, including the preamble.

    When a request would be longer, the oldest exchanges are left out until it has at most `to` tokens (by default half
    of `limit`, or all of it with `sliding=True`). With `digest=DigestTools()` each older tool call is first replaced
    with one line. If the current exchange alone is too long, its tool results and events are cut to their beginning and
    end, but never the user's words.
    """

    limit: int
    to: int | None = None
    sliding: bool = False
    digest: DigestTools | None = None

    def __post_init__(self) -> None:
        check_positive(self.limit, "`limit` of TokenBudget, a number of tokens,")
        resolve_target(self.limit, self.to, sliding=self.sliding)
        _check_digest(self.digest)

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        to = resolve_target(self.limit, self.to, sliding=self.sliding)
        return (make_limit_compactor(OverTokens(self.limit), OverTokens(to), self.digest),)


class WindowShare(msgspec.Struct, frozen=True):
    """A policy that limits requests to the fraction `share` of the model's window.

    When a request would be longer, it is shortened to the fraction `to` of the window (by default half of `share`), in
    the same way as by `TokenBudget`.
    """

    share: float = 0.8
    to: float | None = None
    digest: DigestTools | None = None

    def __post_init__(self) -> None:
        OverWindow(self.share)
        if self.to is not None and OverWindow(self.to).share > self.share:
            raise InputError(
                f"`to` must be at most `share` ({self.share}), not {self.to}: `to` is the share of the window "
                "that is still used after a cut."
            )
        _check_digest(self.digest)

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        to = self.share / 2 if self.to is None else self.to
        return (make_limit_compactor(OverWindow(self.share), OverWindow(to), self.digest),)


def make_limit_compactor(over: Trigger, to: Trigger, digest: DigestTools | None = None) -> Compactor:
    """Return a compactor that drops the oldest exchanges and, if that is not enough, cuts the current one.

    If `digest` is given, this strategy is applied first.
    """
    first = () if digest is None else (digest,)
    return Compactor(over, (*first, DropOldest(), CutCurrent()), to)


def _check_digest(digest: object) -> None:
    if digest is not None and not isinstance(digest, DigestTools):
        raise InputError(f"`digest` must be DigestTools() or None, not {digest!r}.")

"""The field `truncation`: whether a request that is too long for the model may be shortened."""

from __future__ import annotations

import msgspec

from longtalk.errors import ContextOverflow
from longtalk.policies import Combine, Policy
from longtalk.policies.base import Compactor
from longtalk.policies.limits import OverTokens
from longtalk.policies.view import View
from longtalk.providers.base import AsyncProvider


class _Refuse(msgspec.Struct, frozen=True):
    """A strategy that raises `ContextOverflow` instead of making a request shorter."""

    cuts_current = True
    refuses_overflow = True

    def apply(self, view: View, limits: Compactor) -> View:
        raise ContextOverflow(
            f"The request has about {view.tokens:,} tokens and is {limits.over}, the model's window. "
            "With `truncation` set to 'disabled', nothing is left out."
        )


class _Refusing(Combine):
    """A policy that refuses in one request. Stored with the conversation is only the policy that it is made from."""

    def __init__(self, stored: Policy, window: int) -> None:
        super().__init__(stored, Compactor(OverTokens(window), (_Refuse(),), OverTokens(window)))
        self.stored = stored


def refuse_overflow(policy: Policy, provider: AsyncProvider) -> Policy:
    """Return a policy that also refuses a request that does not fit the model's window, if the window is known."""
    window = provider.capabilities.window
    if window is None:
        return policy
    return _Refusing(policy, window)

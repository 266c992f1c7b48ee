"""`Combine`: a policy that applies several policies at once."""

from __future__ import annotations

from longtalk.errors import InputError
from longtalk.policies.base import Compactor, Policy


class Combine:
    """A policy made of several: when a request exceeds the limit of any, it is shortened until it meets all limits."""

    def __init__(self, *policies: Policy) -> None:
        for policy in policies:
            if isinstance(policy, type) or not hasattr(policy, "compactors"):
                raise InputError(f"A policy must be an object such as KeepLast(5), not {policy!r}.")
        self.policies = policies

    def __repr__(self) -> str:
        return f"Combine({', '.join(map(repr, self.policies))})"

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        return tuple(compactor for policy in self.policies for compactor in policy.compactors)

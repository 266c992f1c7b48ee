"""`KeepAll`: send the whole conversation. This is the default policy."""

from __future__ import annotations

import msgspec

from longtalk.policies.base import Compactor


class KeepAll(msgspec.Struct, frozen=True):
    """A policy that sends the whole conversation with each request, as long as it fits the model's window."""

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        return ()

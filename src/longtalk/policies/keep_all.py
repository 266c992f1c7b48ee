"""Keep everything: the default."""

from __future__ import annotations

import msgspec

from longtalk.policies.base import Compactor


class KeepAll(msgspec.Struct, frozen=True):
    """Sends the whole conversation each turn, as long as the model's window takes it."""

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        return ()

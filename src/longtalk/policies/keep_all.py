"""Keep everything: the default."""

from __future__ import annotations

import msgspec

from longtalk.transcript import Transcript


class KeepAll(msgspec.Struct, frozen=True):
    """Sends the whole transcript each turn."""

    def first(self, transcript: Transcript) -> int:  # noqa: ARG002
        return 0

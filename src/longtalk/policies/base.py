"""The contract of a policy."""

from __future__ import annotations

from typing import Protocol

from longtalk.transcript import Transcript


class Policy(Protocol):
    """Decides what of a transcript is sent."""

    def first(self, transcript: Transcript) -> int:
        """The position of the first entry that is sent as it is."""
        ...

"""Limit what an import makes of a file, so that a small file can't fill the memory.

Files may come from strangers. The same content can be used many times in a file: a fragment in many prompts, the
beginning of a conversation in many branches. Every use is counted, and the total is limited in relation to the size of
the file.
"""

from __future__ import annotations

from typing import NoReturn

from longtalk.errors import InputError
from longtalk.transfer.conversation_export import ConversationExport

ALLOWED_BYTES, ALLOWED_RATIO = 100_000_000, 20
"""Of a file with N bytes, an import makes at most `ALLOWED_BYTES + ALLOWED_RATIO * N` bytes."""
REFERENCE_BYTES = 100
"""The memory, roughly, of one more reference to an entry that is already in memory."""
ENTRY_BYTES = 1_000
"""The memory, roughly, of an entry without its text."""


class TooLarge(InputError):
    """Raised if an import would make too much of a file. The whole file is refused, not only one conversation."""


class Budget:
    """The number of bytes that an import may still make of a file."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.limit = ALLOWED_BYTES + ALLOWED_RATIO * size
        self._left = self.limit

    def spend(self, amount: int) -> None:
        """Count this number of bytes; raise `TooLarge` if the budget is exceeded."""
        self._left -= amount
        if self._left < 0:
            self._refuse()

    def spend_on_branches(self, export: ConversationExport) -> None:
        """Count the entries that each branch shares with others, because an import lists them for each branch."""
        for part in export.branches[1:]:
            self.spend(REFERENCE_BYTES * (part.start + len(part.entries)))

    def _refuse(self) -> NoReturn:
        raise TooLarge(
            f"The file has {self.size:,} bytes, but its conversations would have more than {self.limit:,}, the limit "
            "for a file of this size: the same content occurs in them again and again. If you trust the file, split it "
            "into files with fewer conversations."
        )

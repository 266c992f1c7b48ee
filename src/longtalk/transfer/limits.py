"""Limit the memory that importing a file takes, so that a small file can't fill all of it.

Files may come from an untrusted source, and a file can refer to the same content many times: to a fragment in many
prompts, or to the beginning of a conversation in many branches. Each use is counted, and the total is limited in
relation to the size of the file.
"""

from __future__ import annotations

from typing import NoReturn

from longtalk.errors import InputError
from longtalk.transfer.conversation_export import ConversationExport

ALLOWED_BYTES, ALLOWED_RATIO = 100_000_000, 20
"""From a file of N bytes, an import may create at most `ALLOWED_BYTES + ALLOWED_RATIO * N` bytes."""
REFERENCE_BYTES = 100
"""The approximate memory for one more reference to an entry that is already in memory."""
ENTRY_BYTES = 1_000
"""The approximate memory for an entry without its text."""


class TooLarge(InputError):
    """Raised if importing a file would take too much memory. The whole file is refused, not only one conversation."""


class Budget:
    """A limit on the memory that importing a file of `size` bytes may take."""

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
        """Count the entries of each branch after the first, including shared ones, since an import lists them again."""
        for part in export.branches[1:]:
            self.spend(REFERENCE_BYTES * (part.start + len(part.entries)))

    def _refuse(self) -> NoReturn:
        raise TooLarge(
            f"The file has {self.size:,} bytes, but its conversations would have more than {self.limit:,}, the limit "
            "for a file of this size: the same content occurs in them again and again. If you trust the file, split it "
            "into files with fewer conversations."
        )

"""The result of opening a file of another tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from longtalk.transfer.load import ParsedConversation


class ToolFile(msgspec.Struct, frozen=True):
    """An opened file of another tool, whose conversations are read on demand."""

    tool: str
    """The name of the tool."""
    count: int
    """The number of conversations in the file."""
    read: Callable[[], Iterator[ParsedConversation]]
    """A function that returns a new iterator over the conversations, which are read one at a time."""
    has_owners: bool = False
    """True if the conversations have owners in the source."""

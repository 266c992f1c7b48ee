"""The value that importers return for a file of another tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from longtalk.transfer.load import ParsedConversation


class ToolFile(msgspec.Struct, frozen=True):
    """The conversations in a file of another tool."""

    tool: str
    """The name of the tool."""
    count: int
    """The number of conversations in the file."""
    read: Callable[[], Iterator[ParsedConversation]]
    """A function that returns an iterator over the conversations. The iterator reads them one at a time."""

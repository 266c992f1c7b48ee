"""The type of value that importers return for a file of another tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from longtalk.transfer.load import ParsedConversation


class ToolFile(msgspec.Struct, frozen=True):
    """The conversations in a file of another tool, read on demand."""

    tool: str
    count: int
    """The number of conversations in the file."""
    each: Callable[[], Iterator[ParsedConversation]]
    """A function that returns an iterator over the conversations, which are read one at a time."""

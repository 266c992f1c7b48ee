"""A file of another tool, as its reader hands it over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from longtalk.intake import Found


class Others(msgspec.Struct, frozen=True):
    """What a file holds."""

    tool: str
    count: int
    """How many conversations there are."""
    each: Callable[[], Iterator[Found]]
    """Reads them, one by one."""

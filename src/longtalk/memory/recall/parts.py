"""Parts: the pieces of a message that recall ranks on their own, and their traits."""

from __future__ import annotations

import re

from longtalk.memory.recall.query import mentions_time, states_standing_wish

__all__ = ["STANDING", "TIMED", "detect_traits", "split_parts"]

TIMED, STANDING = 1, 2
"""Traits of a part: it mentions a time, or it states a standing wish."""

_LINE = re.compile(r"[^\n]*\n+|[^\n]+")


def detect_traits(text: str, *, is_assistant: bool) -> int:
    """Return the traits of a part with this text as a bit set of `TIMED` and `STANDING`."""
    return TIMED * mentions_time(text) | STANDING * (not is_assistant and states_standing_wish(text))


def split_parts(text: str, size: int) -> list[tuple[int, int]]:
    """Split a text into parts of about `size` characters, at line ends if possible, and return their spans."""
    spans: list[tuple[int, int]] = []
    start = end = 0
    for line in _LINE.finditer(text):
        if end > start and line.end() - start > size:
            spans.append((start, end))
            start = end
        end = line.end()
        while end - start > 2 * size:
            spans.append((start, start + size))
            start += size
    return [*spans, (start, end)] if end > start or not spans else spans

"""Fit a brief into its token budget, whatever its content and whichever counter is used.

First, the oldest lines of each field are dropped until it has at most its maximum number of lines. Each line is cut to
the maximum length for its field, after a whole word and with an ellipsis. Then the budget is filled: first with the
lines that each field is guaranteed (its floor), then with the lines of the highest value. Among lines of equal value,
those of the newest card come first, then short ones, then newer ones. A line that does not fit is skipped, and the next
one is tried. If even the floors don't fit, all their lines are shortened to the same length in requests. They remain
stored in full, and are sent in full again when there is room. If that is not enough, lines of the floors are dropped
too. At least one line is kept if any fits. The same lines always produce the same brief.

The whole brief is counted again after each addition, so it stays within the budget even if a counter returns less for
the sum of the parts than for the whole.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Sequence

import msgspec

from longtalk.memory.brief.lines import Line, enclose, make_line_id, normalize, render_line, shorten, sort_lines
from longtalk.memory.brief.schema import Brief, Schema
from longtalk.tokens import Counter

_CHARS_PER_TOKEN = 16
"""The maximum number of characters per token of an item's limit, even if the counter reports few tokens."""
_MIN_CHARS = 16
"""The minimum length, in characters, to which lines of floors are shortened.

If they still don't fit, lines are dropped.
"""

_replace = msgspec.structs.replace


def fit_budget(lines: Sequence[Line], config: Brief, counter: Counter) -> tuple[tuple[Line, ...], list[Line]]:
    """Return the lines that fit the budget, and the lines that were dropped.

    A line that was cut is in both results: shortened in the first, and in full in the second.
    """
    candidates, dropped = _split_by_cap(lines, config.schema)
    candidates, cut_originals = _cut_items(candidates, config.schema, counter)
    candidates = sort_lines(candidates, config.schema)
    rendered = _RenderedLines(candidates, config, counter)
    chosen, length = _choose_lines(rendered, *_rank_lines(candidates, config.schema))
    fitting = {candidates[i].id: _with_shown_length(candidates[i], length) for i in chosen}
    dropped += cut_originals
    dropped_ids = {line.id for line in dropped}
    dropped += [line for line in candidates if line.id not in fitting and line.id not in dropped_ids]
    return tuple(fitting[line.id] for line in lines if line.id in fitting), dropped


def _with_shown_length(line: Line, length: int) -> Line:
    """Return the line with `shown` set to `length`, or to 0 (all characters) if the line is not longer than that."""
    shown = length if len(line.text) > length else 0
    return line if line.shown == shown else _replace(line, shown=shown)


def _newest_first_key(line: Line) -> tuple[int, int, str]:
    """Return a sort key that puts the most recently stated line first. Lines of the same card keep their order."""
    return -line.seen, line.rank, line.id


def _split_by_cap(lines: Sequence[Line], schema: Schema) -> tuple[list[Line], list[Line]]:
    """Return the newest lines of each field, up to the field's cap, and all other lines."""
    remaining = Tally({field.name: field.cap for field in schema.fields})
    kept_ids: set[str] = set()
    for line in sorted(lines, key=_newest_first_key):
        if remaining[line.field] > 0:
            remaining[line.field] -= 1
            kept_ids.add(line.id)
    return [line for line in lines if line.id in kept_ids], [line for line in lines if line.id not in kept_ids]


def _cut_items(lines: list[Line], schema: Schema, counter: Counter) -> tuple[list[Line], list[Line]]:
    """Return the lines, each cut to its field's maximum length, and the originals of those that were cut or merged.

    Lines that are equal after the cut are merged into one, with the most recent `seen` and `rank` among them.
    """
    limits = {field.name: field.item for field in schema.fields}
    cut_lines: dict[str, Line] = {}
    originals: list[Line] = []
    for line in lines:
        text = cut_to_tokens(line.text, limits[line.field], counter)
        key = make_line_id(line.field, normalize(text))
        if text != line.text or key in cut_lines:
            originals.append(line)
        existing = cut_lines.get(key)
        if existing is None:
            cut_lines[key] = _replace(line, text=text)
        else:
            latest = max((existing, line), key=lambda each: (each.seen, each.rank))
            cut_lines[key] = _replace(existing, seen=latest.seen, rank=latest.rank)
    return list(cut_lines.values()), originals


def cut_to_tokens(text: str, tokens: int, counter: Counter) -> str:
    """Return the text cut to at most `tokens` tokens, but with at least one character."""
    if len(text) <= tokens * _CHARS_PER_TOKEN and counter.count(text) <= tokens:
        return text
    most = min(len(text), tokens * _CHARS_PER_TOKEN) - 1
    return shorten(text, _find_longest(1, most, lambda length: counter.count(shorten(text, length)) <= tokens))


def _find_longest(least: int, most: int, fits: Callable[[int], bool]) -> int:
    """Return the greatest number from `least` to `most` for which `fits` is true, or `least` if there is none.

    The search is binary, so `fits` must be true up to some number and false above it.
    """
    while least < most:
        middle = (least + most + 1) // 2
        if fits(middle):
            least = middle
        else:
            most = middle - 1
    return least


def _rank_lines(lines: Sequence[Line], schema: Schema) -> tuple[list[int], list[int]]:
    """Return the indexes of the lines that floors guarantee, and of all other lines, most important first."""
    value = {field.name: field.value for field in schema.fields}
    newest = max((line.seen for line in lines), default=0)
    remaining = Tally({field.name: field.floor for field in schema.fields})
    guaranteed: set[int] = set()
    for i in sorted(range(len(lines)), key=lambda i: _newest_first_key(lines[i])):
        if remaining[lines[i].field] > 0:
            remaining[lines[i].field] -= 1
            guaranteed.add(i)

    def rank(i: int) -> tuple[int, bool, int, int, int, str]:
        line = lines[i]
        # Compare lengths roughly, so that a few letters don't outweigh weeks of age.
        return (-value[line.field], line.seen < newest, len(line.text).bit_length(), *_newest_first_key(line))

    ranked = sorted(range(len(lines)), key=rank)
    return [i for i in ranked if i in guaranteed], [i for i in ranked if i not in guaranteed]


class _RenderedLines:
    """The lines of a brief as they would be sent, to find out which of them fit the budget together."""

    def __init__(self, lines: Sequence[Line], config: Brief, counter: Counter) -> None:
        keys = {field.name: field.key for field in config.schema.fields}
        self.texts = [(keys[line.field], line.text) for line in lines]
        self.full_lines = [render_line(key, text, 0) for key, text in self.texts]
        self.budget = config.budget
        self.counter = counter

    def fits(self, indexes: Sequence[int], length: int = 0) -> bool:
        """Return True if these lines fit the budget together, each with at most `length` characters (0 for all)."""
        if not indexes:
            return True
        body = [render_line(*self.texts[i], length) if length else self.full_lines[i] for i in sorted(indexes)]
        return self.counter.count(enclose(body)) <= self.budget

    def add_fitting(self, taken: list[int], more: list[int], length: int = 0) -> list[int]:
        """Return `taken` plus those lines of `more` that still fit the budget, trying them in order.

        Each line has at most `length` characters (0 for all).
        """
        if self.fits([*taken, *more], length):
            return [*taken, *more]
        if len(more) <= 1:
            return taken
        half = len(more) // 2
        return self.add_fitting(self.add_fitting(taken, more[:half], length), more[half:], length)

    def find_fitting_length(self, indexes: list[int], least: int) -> int:
        """Return the largest number of characters per line with which these lines fit the budget together.

        Return 0 if there are no lines, or if they don't fit even with `least` characters each.
        """
        if not indexes or not self.fits(indexes, least):
            return 0
        most = max(least, *(len(self.texts[i][1]) for i in indexes))
        return _find_longest(least, most, lambda length: self.fits(indexes, length))


def _choose_lines(rendered: _RenderedLines, floors: list[int], rest: list[int]) -> tuple[list[int], int]:
    """Return the indexes of the lines to send, and the maximum number of characters to send of each (0 for all).

    `floors` and `rest` are what `_rank_lines` returns.
    """
    if rendered.fits(floors) and (chosen := rendered.add_fitting(floors, rest)):
        return chosen, 0
    if length := rendered.find_fitting_length(floors, _MIN_CHARS):
        return floors, length
    if chosen := rendered.add_fitting([], floors, _MIN_CHARS):
        return chosen, _MIN_CHARS
    for i in (*floors, *rest):
        if length := rendered.find_fitting_length([i], 1):
            return [i], length
    return [], 0

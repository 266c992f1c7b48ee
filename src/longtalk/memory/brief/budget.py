"""Fit a brief into its token budget, whatever its content and whichever counter is used.

First, each item is cut to the maximum length for its field, after a whole word and with an ellipsis, and each field to
its maximum number of lines, newest first. Then the budget is filled: first with the lines that each field is guaranteed
(its floor), then with the lines of the highest value. Among lines of equal value, those of the newest card come first,
then short ones, then newer ones. A line that does not fit is skipped, and the next one is tried. If even the floors
don't fit, their lines are sent shortened, all to the same length. They are stored in full, so they are sent in full
again when there is room. Lines of the floors are dropped only if that is not enough. At least one line stays if any
fits. The same lines always give the same brief.

The whole brief is counted again after each addition, so it stays within the budget even if a counter returns less for
the parts than for the whole.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Sequence

import msgspec

from longtalk.memory.brief.lines import Line, enclose, line_id, normalize, render_line, shorten, sort_lines
from longtalk.memory.brief.schema import Brief, Schema
from longtalk.tokens import Counter

_LENGTH = 16
"""An item is cut to this many characters per token of its limit, even if a counter reports fewer tokens."""
_LEAST = 16
"""The minimum number of characters to which lines of floors are shortened. If that is not enough, lines are dropped."""

_replace = msgspec.structs.replace


def fit_budget(lines: Sequence[Line], config: Brief, counter: Counter) -> tuple[tuple[Line, ...], list[Line]]:
    """Return the lines that fit the budget, and the lines that were dropped.

    A shortened line is in both: as it is kept in the first, in full in the second.
    """
    kept, dropped = _capped(lines, config.schema)
    kept, cut = _cut(kept, config.schema, counter)
    kept = sort_lines(kept, config.schema)
    page = _Page(kept, config, counter)
    taken, shown = _chosen(page, *_ranked(kept, config.schema))
    chosen = set(taken)
    fitting = {kept[i].id: _shown(kept[i], shown) for i in chosen}
    dropped += cut
    gone = {line.id for line in dropped}
    dropped += [line for i, line in enumerate(kept) if i not in chosen and line.id not in gone]
    return tuple(fitting[line.id] for line in lines if line.id in fitting), dropped


def _shown(line: Line, length: int) -> Line:
    shown = length if len(line.text) > length else 0
    return line if line.shown == shown else _replace(line, shown=shown)


def _newest_first(line: Line) -> tuple[int, int, str]:
    return -line.seen, line.place, line.id


def _capped(lines: Sequence[Line], schema: Schema) -> tuple[list[Line], list[Line]]:
    """Split lines into those within the caps of their fields, counted from the newest line, and the remaining ones."""
    room = Tally({field.name: field.cap for field in schema.fields})
    kept: set[str] = set()
    for line in sorted(lines, key=_newest_first):
        if room[line.field] > 0:
            room[line.field] -= 1
            kept.add(line.id)
    return [line for line in lines if line.id in kept], [line for line in lines if line.id not in kept]


def _cut(lines: list[Line], schema: Schema, counter: Counter) -> tuple[list[Line], list[Line]]:
    """Return the lines, each cut to the item length of its field, and the originals of those that were cut or merged.

    Lines that are equal after the cut are merged into one with the time and place of the newest.
    """
    room = {field.name: field.item for field in schema.fields}
    made: dict[str, Line] = {}
    cut: list[Line] = []
    for line in lines:
        text = cut_to_tokens(line.text, room[line.field], counter)
        plain = line_id(line.field, normalize(text))
        if text != line.text or plain in made:
            cut.append(line)
        same = made.get(plain)
        if same is None:
            made[plain] = _replace(line, text=text)
        else:
            latest = max((same, line), key=lambda each: (each.seen, each.place))
            made[plain] = _replace(same, seen=latest.seen, place=latest.place)
    return list(made.values()), cut


def cut_to_tokens(text: str, tokens: int, counter: Counter) -> str:
    """Return the text cut to at most `tokens` tokens, but never to less than one character."""
    if len(text) <= tokens * _LENGTH and counter.count(text) <= tokens:
        return text
    most = min(len(text), tokens * _LENGTH) - 1
    return shorten(text, _longest(1, most, lambda length: counter.count(shorten(text, length)) <= tokens))


def _longest(least: int, most: int, fits: Callable[[int], bool]) -> int:
    """Return the greatest number from `least` to `most` for which `fits` is true; it must be true for `least`."""
    while least < most:
        middle = (least + most + 1) // 2
        if fits(middle):
            least = middle
        else:
            most = middle - 1
    return least


def _ranked(lines: Sequence[Line], schema: Schema) -> tuple[list[int], list[int]]:
    """Return the indexes of the lines that belong to floors, and of all other lines, each by decreasing priority."""
    value = {field.name: field.value for field in schema.fields}
    newest = max((line.seen for line in lines), default=0)
    room = Tally({field.name: field.floor for field in schema.fields})
    firm: set[int] = set()
    for i in sorted(range(len(lines)), key=lambda i: _newest_first(lines[i])):
        if room[lines[i].field] > 0:
            room[lines[i].field] -= 1
            firm.add(i)

    def rank(i: int) -> tuple[int, bool, int, int, int, str]:
        line = lines[i]
        # Compare lengths roughly, so that a few letters don't outweigh weeks of age.
        return (-value[line.field], line.seen < newest, len(line.text).bit_length(), *_newest_first(line))

    ranked = sorted(range(len(lines)), key=rank)
    return [i for i in ranked if i in firm], [i for i in ranked if i not in firm]


class _Page:
    """The lines of a brief as they would be sent, and the means to check which of them fit the budget together."""

    def __init__(self, lines: Sequence[Line], config: Brief, counter: Counter) -> None:
        keys = {field.name: field.key for field in config.schema.fields}
        self.texts = [(keys[line.field], line.text) for line in lines]
        self.whole = [render_line(key, text, 0) for key, text in self.texts]
        self.budget = config.budget
        self.counter = counter

    def fits(self, places: Sequence[int], shown: int = 0) -> bool:
        """Return True if these lines fit the budget together, each with at most `shown` characters (0 for all)."""
        if not places:
            return True
        body = [render_line(*self.texts[i], shown) if shown else self.whole[i] for i in sorted(places)]
        return self.counter.count(enclose(body)) <= self.budget

    def filled(self, taken: list[int], more: list[int], shown: int = 0) -> list[int]:
        """Return `taken` plus the lines from `more` that also fit the budget, tried in order."""
        if self.fits([*taken, *more], shown):
            return [*taken, *more]
        if len(more) <= 1:
            return taken
        half = len(more) // 2
        return self.filled(self.filled(taken, more[:half], shown), more[half:], shown)

    def squeezed(self, places: list[int], least: int) -> int:
        """Return the maximum number of characters per line at which these lines fit the budget together.

        Return 0 if there are no lines, or if they don't fit even with `least` characters each.
        """
        if not places or not self.fits(places, least):
            return 0
        most = max(least, *(len(self.texts[i][1]) for i in places))
        return _longest(least, most, lambda length: self.fits(places, length))


def _chosen(page: _Page, floors: list[int], rest: list[int]) -> tuple[list[int], int]:
    """Return the indexes of the lines to send, and how many characters of each to show (0 for all)."""
    if page.fits(floors) and (taken := page.filled(floors, rest)):
        return taken, 0
    if shown := page.squeezed(floors, _LEAST):
        return floors, shown
    if taken := page.filled([], floors, _LEAST):
        return taken, _LEAST
    for i in (*floors, *rest):
        if shown := page.squeezed([i], 1):
            return [i], shown
    return [], 0

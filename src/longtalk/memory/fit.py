"""How notes fit the budget of their brief, whatever is in them and whoever counts.

Items are cut to their length first, at a word and with an ellipsis, and fields to their caps: what was said last stays.
Then the budget is filled. The floors of all fields come first, then the lines with the highest value; of equal value
those of the newest card, then the short ones, then what was said last. Whatever still fits is taken, so the same lines
always give the same brief. Where even the floors are too long, all of them are shown shortened alike, but kept whole,
so that they grow again when there is room. Only then do lines of the floors go; and one line always stays if any can.

The whole brief is counted each time that something is added to it, so the bound does not rest on how a counter adds up.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Sequence

import msgspec

from longtalk.memory.notes import Line, enclosed, in_order, line_id, normal, shortened, shown_line
from longtalk.memory.schema import Brief, Schema
from longtalk.tokens import Counter

_LENGTH = 16
"""Characters of an item for each of its tokens, however few tokens a counter sees in it."""
_LEAST = 16
"""Characters below which the lines of floors are not shortened: rather, there are fewer."""

_replace = msgspec.structs.replace


def fit(lines: Sequence[Line], config: Brief, counter: Counter) -> tuple[tuple[Line, ...], list[Line]]:
    """The lines that a brief keeps, and those that fall out. One that was cut is in both, whole in the second."""
    kept, dropped = _capped(lines, config.schema)
    kept, cut = _cut(kept, config.schema, counter)
    kept = in_order(kept, config.schema)
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
    """The lines that the caps of their fields leave, and the others."""
    room = Tally({field.name: field.cap for field in schema.fields})
    kept: set[str] = set()
    for line in sorted(lines, key=_newest_first):
        if room[line.field] > 0:
            room[line.field] -= 1
            kept.add(line.id)
    return [line for line in lines if line.id in kept], [line for line in lines if line.id not in kept]


def _cut(lines: list[Line], schema: Schema, counter: Counter) -> tuple[list[Line], list[Line]]:
    """Lines with their texts cut to the length of items, and those of which something was cut, as they were.

    Two that are the same now are one, said when the later of them was.
    """
    room = {field.name: field.item for field in schema.fields}
    made: dict[str, Line] = {}
    cut: list[Line] = []
    for line in lines:
        text = cut_to(line.text, room[line.field], counter)
        plain = line_id(line.field, normal(text))
        if text != line.text or plain in made:
            cut.append(line)
        same = made.get(plain)
        if same is None:
            made[plain] = _replace(line, text=text)
        else:
            latest = max((same, line), key=lambda each: (each.seen, each.place))
            made[plain] = _replace(same, seen=latest.seen, place=latest.place)
    return list(made.values()), cut


def cut_to(text: str, tokens: int, counter: Counter) -> str:
    """A text of at most so many tokens, but never less than a character."""
    if len(text) <= tokens * _LENGTH and counter.count(text) <= tokens:
        return text
    most = min(len(text), tokens * _LENGTH) - 1
    return shortened(text, _longest(1, most, lambda length: counter.count(shortened(text, length)) <= tokens))


def _longest(least: int, most: int, fits: Callable[[int], bool]) -> int:
    """The greatest number that fits; the least one is taken for granted."""
    while least < most:
        middle = (least + most + 1) // 2
        if fits(middle):
            least = middle
        else:
            most = middle - 1
    return least


def _ranked(lines: Sequence[Line], schema: Schema) -> tuple[list[int], list[int]]:
    """The places of the lines of floors and of all others, those first that stay longest."""
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
        # Lengths are compared roughly, or a few letters would weigh more than weeks.
        return (-value[line.field], line.seen < newest, len(line.text).bit_length(), *_newest_first(line))

    ranked = sorted(range(len(lines)), key=rank)
    return [i for i in ranked if i in firm], [i for i in ranked if i not in firm]


class _Page:
    """Lines as they would stand on the wire, and whether some of them fit."""

    def __init__(self, lines: Sequence[Line], config: Brief, counter: Counter) -> None:
        keys = {field.name: field.key for field in config.schema.fields}
        self.texts = [(keys[line.field], line.text) for line in lines]
        self.whole = [shown_line(key, text, 0) for key, text in self.texts]
        self.budget = config.budget
        self.counter = counter

    def fits(self, places: Sequence[int], shown: int = 0) -> bool:
        """Whether these fit, each shown with at most so many characters."""
        if not places:
            return True
        body = [shown_line(*self.texts[i], shown) if shown else self.whole[i] for i in sorted(places)]
        return self.counter.count(enclosed(body)) <= self.budget

    def filled(self, taken: list[int], more: list[int], shown: int = 0) -> list[int]:
        """Those taken, and of the others each that still fits, in this order."""
        if self.fits([*taken, *more], shown):
            return [*taken, *more]
        if len(more) <= 1:
            return taken
        half = len(more) // 2
        return self.filled(self.filled(taken, more[:half], shown), more[half:], shown)

    def squeezed(self, places: list[int], least: int) -> int:
        """With how many characters each these fit; 0 if they don't with the least either."""
        if not places or not self.fits(places, least):
            return 0
        most = max(least, *(len(self.texts[i][1]) for i in places))
        return _longest(least, most, lambda length: self.fits(places, length))


def _chosen(page: _Page, floors: list[int], rest: list[int]) -> tuple[list[int], int]:
    """The places of the lines that go on the wire, and how many characters of each are shown; 0 for all."""
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

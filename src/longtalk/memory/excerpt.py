"""Excerpts: what is recalled as text, within a budget, in the order it was said.

`fill` takes hits best first as long as they fit, goes on to smaller ones where one does not, and cuts the best that is
left to what remains. Its budget is never exceeded: in the end the whole text is counted. `render` gives the text: a
line with the date for each day, then who said what. What is not the whole message is marked with "…".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from longtalk.memory.recall import Hit, Index, Unit

__all__ = ["fill", "render"]

_MISFITS = 60  # hits in a row that may be too big before it is enough
_ROUNDS = 3  # times that what is left over is filled
_SCRAP = 12  # tokens below which a cut says nothing
_LATEST = 253_402_300_799  # the last second that a calendar has


def render(index: Index, hits: Iterable[Hit]) -> str:
    """The text of these hits, as a model would read it. Ends with a line end, if it is not empty."""
    lines: list[str] = []
    day = ""
    for unit, spans in _by_unit(index, hits):
        said = dated(unit.at)
        if said != day:
            lines.append(said)
            day = said
        lines.append(_line(unit, spans))
    return "".join(lines)


def fill(index: Index, hits: Sequence[Hit], budget: int, count: Callable[[str], int]) -> tuple[Hit, ...]:
    """Those of the hits, best first, that fit the budget, in the order they were said."""
    chosen: list[Hit] = []
    waiting = list(hits)
    left = budget
    for _ in range(_ROUNDS):
        taken, waiting = _greedy(index, waiting, left, count, {index.at(hit.place).at // 86_400 for hit in chosen})
        chosen += taken
        left = budget - count(render(index, chosen)) if chosen else budget
        if not taken or left <= 0:
            break
    if left >= _SCRAP and waiting:
        chosen += _cut(index, waiting[0], left, count)
    while chosen and count(render(index, chosen)) > budget:
        chosen.pop()
    return tuple(sorted(chosen, key=lambda hit: (hit.place, hit.start)))


def _greedy(
    index: Index, hits: list[Hit], left: int, count: Callable[[str], int], days: set[int]
) -> tuple[list[Hit], list[Hit]]:
    """What fits, one by one, and what does not."""
    taken: list[Hit] = []
    waiting: list[Hit] = []
    misfits = 0
    for position, hit in enumerate(hits):
        unit = index.at(hit.place)
        day = unit.at // 86_400
        cost = count(_line(unit, [(hit.start, hit.stop)])) + (0 if day in days else count(dated(unit.at)))
        if cost <= left:
            taken.append(hit)
            days.add(day)
            left -= cost
            misfits = 0
        else:
            waiting.append(hit)
            misfits += 1
        if misfits >= _MISFITS or left <= 0:
            return taken, [*waiting, *hits[position + 1 :]]
    return taken, waiting


def _cut(index: Index, hit: Hit, left: int, count: Callable[[str], int]) -> list[Hit]:
    """The beginning of a hit, as much of it as fits, to the end of a word."""
    unit = index.at(hit.place)
    low, high = hit.start, hit.stop
    while low < high:
        middle = (low + high + 1) // 2
        if count(dated(unit.at)) + count(_line(unit, [(hit.start, middle)])) <= left:
            low = middle
        else:
            high = middle - 1
    if low < hit.stop:
        low = max(unit.text.rfind(" ", hit.start, low), unit.text.rfind("\n", hit.start, low), hit.start)
    return [msgspec.structs.replace(hit, stop=low)] if unit.text[hit.start : low].strip() else []


def _by_unit(index: Index, hits: Iterable[Hit]) -> list[tuple[Unit, list[tuple[int, int]]]]:
    """The spans of each unit, in order; those that touch are one."""
    found: list[tuple[Unit, list[tuple[int, int]]]] = []
    for hit in sorted(hits, key=lambda hit: (hit.place, hit.start)):
        unit = index.at(hit.place)
        if not found or found[-1][0] is not unit:
            found.append((unit, [(hit.start, hit.stop)]))
        elif found[-1][1][-1][1] == hit.start:
            found[-1][1][-1] = (found[-1][1][-1][0], hit.stop)
        else:
            found[-1][1].append((hit.start, hit.stop))
    return found


def _line(unit: Unit, spans: Sequence[tuple[int, int]]) -> str:
    """Who said it, and what; gaps marked."""
    first, last = spans[0][0], spans[-1][1]
    said = " … ".join(unit.text[start:stop].strip() for start, stop in spans)
    before = "… " if first else ""
    after = " …" if last < len(unit.text) else ""
    return f"{unit.name or unit.role.capitalize()}: {before}{said}{after}\n"


def dated(at: int) -> str:
    """The line that tells a day; nothing where it is unknown."""
    return datetime.fromtimestamp(at, UTC).strftime("[%a %Y-%m-%d]\n") if 0 < at <= _LATEST else ""

"""Excerpts: what is recalled as text, within a budget, in the order it was said.

`fill` takes hits best first as long as they fit, goes on to smaller ones where one does not, and cuts the best that is
left to what remains. Its budget is never exceeded: in the end the whole text is counted. `render` gives the text: a
line with the date for each day, then who said what. A year that goes on is not told again, nor is who goes on, after
a "…". What is not the whole message is marked with "…" too.
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
_DAY = 86_400
_LATEST = 253_402_300_799  # the last second that a calendar has


def render(index: Index, hits: Iterable[Hit]) -> str:
    """The text of these hits, as a model would read it. Ends with a line end, if it is not empty."""
    lines: list[str] = []
    before: Unit | None = None
    for unit, spans in _by_unit(index, hits):
        lines.append(dated(unit.at, before.at if before else 0))
        lines.append(_line(unit, spans, goes_on=before is not None and _together(before, unit)))
        before = unit
    return "".join(lines)


def fill(index: Index, hits: Sequence[Hit], budget: int, count: Callable[[str], int]) -> tuple[Hit, ...]:
    """Those of the hits, best first, that fit the budget, in the order they were said."""
    chosen: list[Hit] = []
    waiting = list(hits)
    left = budget
    for _ in range(_ROUNDS):
        taken, waiting = _greedy(index, waiting, left, count, chosen)
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
    index: Index, hits: list[Hit], left: int, count: Callable[[str], int], chosen: Sequence[Hit]
) -> tuple[list[Hit], list[Hit]]:
    """What fits beside what is chosen, one by one, and what does not."""
    times = [index.at(hit.place).at for hit in chosen]
    days, before = {at // _DAY for at in times}, times[-1] if times else 0
    taken: list[Hit] = []
    waiting: list[Hit] = []
    misfits = 0
    for position, hit in enumerate(hits):
        unit = index.at(hit.place)
        day = unit.at // _DAY
        cost = count(_line(unit, [(hit.start, hit.stop)])) + (0 if day in days else count(dated(unit.at, before)))
        if cost <= left:
            taken.append(hit)
            days.add(day)
            before = unit.at
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


def _together(before: Unit, unit: Unit) -> bool:
    """Whether the same one said both on the same day."""
    return (before.at // _DAY, before.role, before.name) == (unit.at // _DAY, unit.role, unit.name)


def _line(unit: Unit, spans: Sequence[tuple[int, int]], *, goes_on: bool = False) -> str:
    """Who said it, unless they go on, and what; gaps marked."""
    first, last = spans[0][0], spans[-1][1]
    said = " … ".join(unit.text[start:stop].strip() for start, stop in spans)
    who = "" if goes_on else f"{unit.name or unit.role.capitalize()}: "
    before = "… " if first or goes_on else ""
    after = " …" if last < len(unit.text) else ""
    return f"{who}{before}{said}{after}\n"


def dated(at: int, before: int = 0) -> str:
    """The line that tells a day, after that of another; nothing where it is the same or unknown."""
    if not 0 < at <= _LATEST or at // _DAY == before // _DAY:
        return ""
    day = datetime.fromtimestamp(at, UTC)
    known = 0 < before <= _LATEST and day.year == datetime.fromtimestamp(before, UTC).year
    return f"[{day:%a} {day.day} {day:%b}{'' if known else day.strftime(' %Y')}]\n"

"""Excerpts: select hits within a token budget, and render them in the order of the conversation.

`select_hits` takes the hits that fit, best first, skips those that are too long, and finally cuts the best remaining
one to fit. The final text is counted as a whole, so the budget is never exceeded. `render` writes a line with the date
for each day, then speakers and texts. A year or speaker is not repeated while it stays the same. Gaps in a text are
marked with "…".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from longtalk.memory.recall.index import Hit, RecallIndex, Unit

__all__ = ["render", "select_hits"]

_MISFITS = 60  # hits in a row that may be too big before it is enough
_ROUNDS = 3  # times that what is left over is filled
_SCRAP = 12  # tokens below which a cut says nothing
_DAY = 86_400
_LATEST = 253_402_300_799  # the last second that a calendar has


def render(index: RecallIndex, hits: Iterable[Hit]) -> str:
    """Return the text of these hits as it is sent to the model. It ends with a newline unless it is empty."""
    lines: list[str] = []
    before: Unit | None = None
    for unit, spans in _by_unit(index, hits):
        lines.append(date_line(unit.at, before.at if before else 0))
        lines.append(_line(unit, spans, goes_on=before is not None and _together(before, unit)))
        before = unit
    return "".join(lines)


def select_hits(index: RecallIndex, hits: Sequence[Hit], budget: int, count: Callable[[str], int]) -> tuple[Hit, ...]:
    """Return the hits that fit the budget. They are chosen best first and returned in the order of the conversation."""
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
    return tuple(sorted(chosen, key=lambda hit: (hit.position, hit.start)))


def _greedy(
    index: RecallIndex, hits: list[Hit], left: int, count: Callable[[str], int], chosen: Sequence[Hit]
) -> tuple[list[Hit], list[Hit]]:
    """Return the hits that fit into `left` tokens in addition to the chosen ones, and the hits that remain.

    Hits are tried in order. Dates that the chosen hits already show are not counted again.
    """
    times = [index.at(hit.position).at for hit in chosen]
    days, before = {at // _DAY for at in times}, times[-1] if times else 0
    taken: list[Hit] = []
    waiting: list[Hit] = []
    misfits = 0
    for position, hit in enumerate(hits):
        unit = index.at(hit.position)
        day = unit.at // _DAY
        cost = count(_line(unit, [(hit.start, hit.stop)])) + (0 if day in days else count(date_line(unit.at, before)))
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


def _cut(index: RecallIndex, hit: Hit, left: int, count: Callable[[str], int]) -> list[Hit]:
    """Return the hit cut to fit into `left` tokens, at the end of a word, in a list; an empty list if nothing fits."""
    unit = index.at(hit.position)
    low, high = hit.start, hit.stop
    while low < high:
        middle = (low + high + 1) // 2
        if count(date_line(unit.at)) + count(_line(unit, [(hit.start, middle)])) <= left:
            low = middle
        else:
            high = middle - 1
    if low < hit.stop:
        low = max(unit.text.rfind(" ", hit.start, low), unit.text.rfind("\n", hit.start, low), hit.start)
    return [msgspec.structs.replace(hit, stop=low)] if unit.text[hit.start : low].strip() else []


def _by_unit(index: RecallIndex, hits: Iterable[Hit]) -> list[tuple[Unit, list[tuple[int, int]]]]:
    """Group hits by unit, in the order of the conversation, as spans of characters. Adjacent spans are merged."""
    found: list[tuple[Unit, list[tuple[int, int]]]] = []
    for hit in sorted(hits, key=lambda hit: (hit.position, hit.start)):
        unit = index.at(hit.position)
        if not found or found[-1][0] is not unit:
            found.append((unit, [(hit.start, hit.stop)]))
        elif found[-1][1][-1][1] == hit.start:
            found[-1][1][-1] = (found[-1][1][-1][0], hit.stop)
        else:
            found[-1][1].append((hit.start, hit.stop))
    return found


def _together(before: Unit, unit: Unit) -> bool:
    """Return True if both units have the same speaker and day."""
    return (before.at // _DAY, before.role, before.name) == (unit.at // _DAY, unit.role, unit.name)


def _line(unit: Unit, spans: Sequence[tuple[int, int]], *, goes_on: bool = False) -> str:
    """Return the line for a unit: the speaker, unless the same one goes on, then the spans, with gaps marked."""
    first, last = spans[0][0], spans[-1][1]
    said = " … ".join(unit.text[start:stop].strip() for start, stop in spans)
    who = "" if goes_on else f"{unit.name or unit.role.capitalize()}: "
    before = "… " if first or goes_on else ""
    after = " …" if last < len(unit.text) else ""
    return f"{who}{before}{said}{after}\n"


def date_line(at: int, before: int = 0) -> str:
    """Return a line with the date of the time `at`, in seconds; empty if the time is unknown.

    `before` is the time of the previous date line. For the same day the line is empty, and for the same year it omits
    the year.
    """
    if not 0 < at <= _LATEST or at // _DAY == before // _DAY:
        return ""
    day = datetime.fromtimestamp(at, UTC)
    known = 0 < before <= _LATEST and day.year == datetime.fromtimestamp(before, UTC).year
    return f"[{day:%a} {day.day} {day:%b}{'' if known else day.strftime(' %Y')}]\n"

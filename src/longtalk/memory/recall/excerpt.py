"""Excerpts: select hits within a token budget, and render them in the order of the conversation.

`select_hits` takes the hits that fit, best first, skips those that are too long, and finally cuts the best skipped hit
to fit. The final text is counted as a whole, so the budget is never exceeded. `render_hits` writes a line with the date
for each day, followed by the speakers and their texts. A year or a speaker is written only when it changes. Gaps in a
text are marked with "…".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from longtalk.memory.recall.index import Hit, RecallIndex, Unit

__all__ = ["list_quotes", "render_hits", "select_hits"]

_MAX_MISFITS = 60  # hits in a row that don't fit, after which no more are tried
_LOADED_AT_ONCE = 32  # hits whose texts are read together
_MAX_CHARS_PER_TOKEN = 8  # a hit with more characters for each remaining token is not even read
_MAX_ROUNDS = 3  # how often the remaining budget is filled again
_MIN_CUT_TOKENS = 12  # a shorter excerpt would say nothing
_DAY = 86_400
_LATEST = 253_402_300_799  # the last second that `datetime` can represent


def render_hits(index: RecallIndex, hits: Iterable[Hit]) -> str:
    """Return the text of these hits as it is sent to the model. It ends with a newline unless it is empty."""
    return "".join(text for _, text in list_quotes(index, hits))


def list_quotes(index: RecallIndex, hits: Iterable[Hit]) -> list[tuple[int, str]]:
    """Return the position of each quoted message, and the lines that quote it, with the date if it is a new one."""
    quotes: list[tuple[int, str]] = []
    previous: Unit | None = None
    origin = ""
    for unit, spans in _group_by_unit(index, hits):
        lines: list[str] = []
        if index.describe_origin is not None and (new := index.describe_origin(unit.position)) != origin:
            lines.append(f"[{new}]\n")
            origin, previous = new, None
        lines.append(render_date(unit.at, previous.at if previous else 0))
        continues = previous is not None and _has_same_speaker_and_day(previous, unit)
        lines.append(_render_unit(unit, spans, same_speaker=continues, note=_note_correction(index, unit, spans)))
        quotes.append((unit.position, "".join(lines)))
        previous = unit
    return quotes


def _note_correction(index: RecallIndex, unit: Unit, spans: Sequence[tuple[int, int]]) -> str:
    """Return what holds now instead of what a quote says; empty unless it was corrected."""
    if index.find_correction is None:
        return ""
    found = index.find_correction(unit.position, " ".join(unit.text[start:stop] for start, stop in spans))
    return f" [corrected later: {found.text}]" if found is not None and found.text else ""


def select_hits(index: RecallIndex, hits: Sequence[Hit], budget: int, count: Callable[[str], int]) -> tuple[Hit, ...]:
    """Return the hits that fit the budget. They are chosen best first and returned in the order of the conversation."""
    chosen: list[Hit] = []
    skipped = list(hits)
    remaining = budget
    costs: dict[Hit, int] = {}
    for _ in range(_MAX_ROUNDS):
        taken, skipped = _select_greedily(index, skipped, remaining, count, chosen, costs)
        if not taken:
            break
        chosen += taken
        remaining = budget - count(render_hits(index, chosen))
        if remaining <= 0:
            break
    cut = _cut_hit(index, skipped[0], remaining, count) if remaining >= _MIN_CUT_TOKENS and skipped else []
    chosen += cut
    while (cut or remaining < 0) and chosen and count(render_hits(index, chosen)) > budget:
        chosen.pop()
    return tuple(sorted(chosen, key=lambda hit: (hit.position, hit.start)))


def _select_greedily(
    index: RecallIndex,
    hits: list[Hit],
    remaining: int,
    count: Callable[[str], int],
    chosen: Sequence[Hit],
    costs: dict[Hit, int],
) -> tuple[list[Hit], list[Hit]]:
    """Return the hits that fit into `remaining` tokens in addition to the `chosen` ones, and the hits that don't fit.

    Hits are tried in order. The date lines of the chosen hits are not counted again. `costs` keeps the tokens of hits.
    """
    times = [index.get_unit(hit.position).at for hit in chosen]
    days, previous = {at // _DAY for at in times}, times[-1] if times else 0
    taken: list[Hit] = []
    skipped: list[Hit] = []
    misfits = loaded = 0
    for i, hit in enumerate(hits):
        if misfits >= _MAX_MISFITS or remaining <= 0:
            return taken, [*skipped, *hits[i:]]
        if not _may_fit(hit, remaining):
            skipped.append(hit)
            misfits += 1
            continue
        if i >= loaded:
            loaded = i + _LOADED_AT_ONCE
            index.load_units(each.position for each in hits[i:loaded] if _may_fit(each, remaining))
        unit = index.get_unit(hit.position)
        day = unit.at // _DAY
        if hit not in costs:
            costs[hit] = count(_render_unit(unit, [(hit.start, hit.stop)]))
        cost = costs[hit]
        if day not in days:
            cost += count(render_date(unit.at, previous))
        if cost <= remaining:
            taken.append(hit)
            days.add(day)
            previous = unit.at
            remaining -= cost
            misfits = 0
        else:
            skipped.append(hit)
            misfits += 1
    return taken, skipped


def _may_fit(hit: Hit, remaining: int) -> bool:
    """Return False if a hit is too long for the remaining tokens, as can be seen without reading it."""
    return hit.stop - hit.start <= _MAX_CHARS_PER_TOKEN * remaining


def _cut_hit(index: RecallIndex, hit: Hit, remaining: int, count: Callable[[str], int]) -> list[Hit]:
    """Return the hit in a list, cut at the end of a word to fit into `remaining` tokens; empty if nothing fits."""
    unit = index.get_unit(hit.position)
    low, high = hit.start, hit.stop
    while low < high:
        middle = (low + high + 1) // 2
        if count(render_date(unit.at)) + count(_render_unit(unit, [(hit.start, middle)])) <= remaining:
            low = middle
        else:
            high = middle - 1
    if low < hit.stop:
        low = max(unit.text.rfind(" ", hit.start, low), unit.text.rfind("\n", hit.start, low), hit.start)
    return [msgspec.structs.replace(hit, stop=low)] if unit.text[hit.start : low].strip() else []


def _group_by_unit(index: RecallIndex, hits: Iterable[Hit]) -> list[tuple[Unit, list[tuple[int, int]]]]:
    """Return the units that have hits, in the order of the conversation, each with the spans of its hits.

    A span is a range of characters in the text of the unit. Adjacent spans are merged.
    """
    groups: list[tuple[Unit, list[tuple[int, int]]]] = []
    for hit in sorted(hits, key=lambda hit: (hit.position, hit.start)):
        unit = index.get_unit(hit.position)
        if not groups or groups[-1][0] is not unit:
            groups.append((unit, [(hit.start, hit.stop)]))
        elif groups[-1][1][-1][1] == hit.start:
            groups[-1][1][-1] = (groups[-1][1][-1][0], hit.stop)
        else:
            groups[-1][1].append((hit.start, hit.stop))
    return groups


def _has_same_speaker_and_day(previous: Unit, unit: Unit) -> bool:
    """Return True if both units are from the same speaker and the same day."""
    return (previous.at // _DAY, previous.role, previous.name) == (unit.at // _DAY, unit.role, unit.name)


def _render_unit(unit: Unit, spans: Sequence[tuple[int, int]], *, same_speaker: bool = False, note: str = "") -> str:
    """Return the line for a unit: its speaker, unless `same_speaker`, its text with gaps marked, a note."""
    first, last = spans[0][0], spans[-1][1]
    text = " … ".join(unit.text[start:stop].strip() for start, stop in spans)
    who = "" if same_speaker else f"{unit.name or unit.role.capitalize()}: "
    previous = "… " if first or same_speaker else ""
    after = " …" if last < len(unit.text) else ""
    return f"{who}{previous}{text}{after}{note}\n"


def render_date(at: int, previous: int = 0) -> str:
    """Return a line with the date of `at`, a time in seconds; empty if the time is unknown.

    `previous` is the time of the previous date line. The line is empty if the day is the same, and omits the year if
    the year is the same.
    """
    if not 0 < at <= _LATEST or at // _DAY == previous // _DAY:
        return ""
    return _render_day(at // _DAY, previous // _DAY if 0 < previous <= _LATEST else None)


@lru_cache(maxsize=1_000)
def _render_day(number: int, previous: int | None) -> str:
    """Return the line for a day, given as a number of days since 1970. `previous` is the day of the previous line."""
    day = datetime.fromtimestamp(number * _DAY, UTC)
    known = previous is not None and day.year == datetime.fromtimestamp(previous * _DAY, UTC).year
    return f"[{day:%a} {day.day} {day:%b}{'' if known else day.strftime(' %Y')}]\n"

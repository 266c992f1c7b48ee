"""What a message asks for, as far as recall needs to know: its terms, the days it names, and what it hints at.

The hints are English, as are the names of months; the rest is of any language. All of it is told from the message
alone, without a model.
"""

from __future__ import annotations

import re
from datetime import date, timedelta

import msgspec

from longtalk.memory.terms import worded

__all__ = ["EPOCH", "Question", "days", "instructs", "read", "tells_time", "year_of"]

EPOCH = date(1970, 1, 1).toordinal()
"""The day that times are counted from."""
_YEAR = "january february march april may june july august september october november december"
_MONTHS = _YEAR.split()
_MONTH = {name: number for number, month in enumerate(_MONTHS, 1) for name in (month, month[:3])}
_NAMES = "|".join(sorted(_MONTH, key=len, reverse=True))
_ISO = re.compile(r"(?<!\d)(\d{4})-(\d\d?)-(\d\d?)(?!\d)", re.A)
_NAMED = re.compile(
    rf"(?:\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?)?\b({_NAMES})\b\.?"
    r"(?:\s+(\d{1,2})(?:st|nd|rd|th)?(?!\d))?(?:,?\s+(?:of\s+)?(\d{4})\b)?",
    re.I | re.A,
)
_AGO = re.compile(
    r"\b(\d{1,3}|an?|one|two|three|four|five|six)\s+(day|week|month|year)s?\s+ago\b|\byesterday\b", re.I | re.A
)
_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_SPANS = {"day": 1, "week": 7, "month": 30, "year": 365}
_WHEN = re.compile(r"\b(?:when|what (?:day|date|month|year|time)|how (?:long|soon)|since)\b", re.I | re.A)
_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|weeks?|weekend|months?|years?|days?|last|next|ago|(?:mon|tues|wednes|thurs|fri"
    rf"|satur|sun)day|{'|'.join(_MONTHS)}|summer|winter|spring|autumn|since|\d{{1,2}}(?::\d\d)?\s?[ap]m|\d{{4}})\b",
    re.I | re.A,
)
_STANDING = re.compile(r"\b(?:always|never|prefer(?:red|s)?|from now on|in future|whenever|every time)\b", re.I | re.A)
_TO_YOU = re.compile(
    r"\b(?:did|have|had|were|was) you\b|\byou(?:'ve| have| had)? (?:just )?(?:\w+ed|said|told|gave|wrote|made|shown?)\b"
    r"|\byour (?:\w+ )?(?:answer|advice|suggestions?|recommendations?|explanation|reply|list|code|example)\b",
    re.I | re.A,
)

_BACK = re.compile(
    r"\b(?:remember|remind(?:ed)?|recall|earlier|previous(?:ly)?|before|last time|already|again|ago|our|my"
    r"|(?:did|have|had|was|were|am) (?:i|we|you)|(?:i|we|you)(?:'d|'ve| had| have)? (?:said|told|mentioned|discussed"
    r"|talked|agreed|decided|planned|asked|wanted|suggested|recommended))\b",
    re.I | re.A,
)


class Question(msgspec.Struct, frozen=True):
    """A message, read as a question to what was said."""

    terms: tuple[str, ...]
    """In order, each as often as it comes."""
    words: dict[str, str]
    """By term: the word it comes from."""
    days: tuple[tuple[int, int], ...]
    """First and last day of each span it names, as ordinals."""
    when: bool
    """Whether it asks for a time."""
    to_you: bool
    """Whether it is about what the assistant said or did."""
    back: bool
    """Whether it speaks of the past, or of what is one's own."""


def read(text: str, *, now: int = 0, years: range = range(0)) -> Question:
    """Read a message. `now` is the time it was said at; `years` are those a month without a year may be of."""
    said = worded(text)
    return Question(
        terms=tuple(term for term, _ in said),
        words=dict(said),
        days=tuple(days(text, now=now, years=years)),
        when=bool(_WHEN.search(text)),
        to_you=bool(_TO_YOU.search(text)),
        back=bool(_BACK.search(text)),
    )


def tells_time(text: str) -> bool:
    """Whether a text says when."""
    return bool(_TIME.search(text))


def instructs(text: str) -> bool:
    """Whether a text states a standing wish: always, never, prefer."""
    return bool(_STANDING.search(text))


def days(text: str, *, now: int = 0, years: range = range(0)) -> list[tuple[int, int]]:
    """The spans of days that a text names: dates, months, and how long ago."""
    found = [span(int(y), int(m), int(d)) for y, m, d in _ISO.findall(text)]
    for before, month, after, year in _NAMED.findall(text):
        if month == "may" and not (before or after or year):
            continue  # the verb
        day = int(before or after or 0)
        of = [int(year)] if year else years
        found += [span(one, _MONTH[month.lower()], day) for one in of]
    if now:
        found += [ago(match, now) for match in _AGO.finditer(text)]
    return [one for one in found if one is not None]


def span(year: int, month: int, day: int) -> tuple[int, int] | None:
    """A day, or without one the month, as ordinals; nothing if there is no such day."""
    try:
        first = date(year, month, day or 1)
        last = first if day else date(year + month // 12, month % 12 + 1, 1) - timedelta(days=1)
    except ValueError:
        return None
    return first.toordinal(), last.toordinal()


def ago(match: re.Match[str], now: int) -> tuple[int, int]:
    """The days around what is so long ago; the longer, the wider."""
    count, unit = match.groups()
    today = EPOCH + now // 86_400
    size = _SPANS[unit.lower()] if unit else 1
    number = (_COUNTS.get(count.lower()) or int(count)) if count else 1
    middle = today - size * number
    return middle - size // 2, middle + size // 2


def year_of(day: int) -> int:
    """The year of a day; of one that no calendar has, the nearest."""
    return date.fromordinal(min(max(day, 1), date.max.toordinal())).year

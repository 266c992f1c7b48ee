"""Parse a message into a query for recall: its terms, the days that it names, and hints such as "remember".

Hints and month names are recognized in English only; everything else works in any language. No model is called.
"""

from __future__ import annotations

import re
from datetime import date, timedelta

import msgspec

from longtalk.memory.terms import extract_terms_with_words

__all__ = ["EPOCH", "Query", "find_days", "get_year", "mentions_time", "parse_query", "states_standing_wish"]

EPOCH = date(1970, 1, 1).toordinal()
"""The ordinal of 1 January 1970, as `date.toordinal` returns it."""
_MONTH_NAMES = "january february march april may june july august september october november december"
_MONTHS = _MONTH_NAMES.split()
_MONTH_NUMBERS = {name: number for number, month in enumerate(_MONTHS, 1) for name in (month, month[:3])}
_MONTH_PATTERN = "|".join(sorted(_MONTH_NUMBERS, key=len, reverse=True))
_ISO_DATE = re.compile(r"(?<!\d)(\d{4})-(\d\d?)-(\d\d?)(?!\d)", re.A)
_NAMED_DATE = re.compile(
    rf"(?:\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?)?\b({_MONTH_PATTERN})\b\.?"
    r"(?:\s+(\d{1,2})(?:st|nd|rd|th)?(?!\d))?(?:,?\s+(?:of\s+)?(\d{4})\b)?",
    re.I | re.A,
)
_AGO = re.compile(
    r"\b(\d{1,3}|an?|one|two|three|four|five|six)\s+(day|week|month|year)s?\s+ago\b|\byesterday\b", re.I | re.A
)
_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}
_ASKS_WHEN = re.compile(r"\b(?:when|what (?:day|date|month|year|time)|how (?:long|soon)|since)\b", re.I | re.A)
_MENTIONS_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|weeks?|weekend|months?|years?|days?|last|next|ago|(?:mon|tues|wednes|thurs|fri"
    rf"|satur|sun)day|{'|'.join(_MONTHS)}|summer|winter|spring|autumn|since|\d{{1,2}}(?::\d\d)?\s?[ap]m|\d{{4}})\b",
    re.I | re.A,
)
_STANDING_WISH = re.compile(
    r"\b(?:always|never|prefer(?:red|s)?|from now on|in future|whenever|every time)\b", re.I | re.A
)
_ABOUT_ASSISTANT = re.compile(
    r"\b(?:did|have|had|were|was) you\b|\byou(?:'ve| have| had)? (?:just )?(?:\w+ed|said|told|gave|wrote|made|shown?)\b"
    r"|\byour (?:\w+ )?(?:answer|advice|suggestions?|recommendations?|explanation|reply|list|code|example)\b",
    re.I | re.A,
)

_REFERS_BACK = re.compile(
    r"\b(?:remember|remind(?:ed)?|recall|earlier|previous(?:ly)?|before|last time|already|again|ago|our|my"
    r"|(?:did|have|had|was|were|am) (?:i|we|you)|(?:i|we|you)(?:'d|'ve| had| have)? (?:said|told|mentioned|discussed"
    r"|talked|agreed|decided|planned|asked|wanted|suggested|recommended))\b",
    re.I | re.A,
)
_QUESTION = re.compile(
    r"[?？؟¿]|^\s*(?:(?:and|but|so|also|hey|hi|hello|please|ok(?:ay)?),?\s+)*(?:who|whom|whose|what|when|where|which|why|how"
    r"|(?:do|does|did|is|are|was|were|am|can|could|will|would|should|have|has|had)\s+(?:i|you|we|he|she|it|they|my|the|there)"
    r"|remind|tell me|list|summari[sz]e|recap)\b"
    # A few words that are no sentence, as in a search. In scripts without spaces, any message without a full stop.
    r"|^\s*(?:\S+\s+){0,3}\S*[^\s.!。！]\s*$",
    re.I,
)
_SENTENCE = re.compile(r"[^.!?؟。！？\n]+[.!?؟。！？]*")


class Query(msgspec.Struct, frozen=True):
    """A message, parsed into a query for earlier entries."""

    terms: tuple[str, ...]
    """The terms of the message in order, with repetitions."""
    words: dict[str, str]
    """For each term, a word of the message from which it was made."""
    days: tuple[tuple[int, int], ...]
    """The ordinals of the first and last day of each period that the message names."""
    asks_when: bool
    """Whether the message asks for a date, a time or a duration."""
    about_assistant: bool
    """Whether the message is about what the assistant said or did."""
    refers_back: bool
    """Whether the message refers to earlier messages or to the user's own affairs."""
    is_question: bool
    """Whether the message asks for something, and does not only state it."""
    question_share: float
    """The share of the message's words that are in sentences which ask for something."""


def parse_query(text: str, *, now: int = 0, years: range = range(0)) -> Query:
    """Parse a message into a query.

    `now` is the time of the message in seconds; 0 if unknown. A month that is named without a year may be in any of
    `years`.
    """
    terms_and_words = extract_terms_with_words(text)
    return Query(
        terms=tuple(term for term, _ in terms_and_words),
        words=dict(terms_and_words),
        days=tuple(find_days(text, now=now, years=years)),
        asks_when=bool(_ASKS_WHEN.search(text)),
        about_assistant=bool(_ABOUT_ASSISTANT.search(text)),
        refers_back=bool(_REFERS_BACK.search(text)),
        is_question=bool(_QUESTION.search(text)),
        question_share=measure_question_share(text),
    )


def measure_question_share(text: str) -> float:
    """Return the share of a message's words that are in sentences which ask for something, from 0 to 1."""
    if not _QUESTION.search(text):
        return 0.0
    sentences = [(len(sentence.split()), bool(_QUESTION.search(sentence))) for sentence in _SENTENCE.findall(text)]
    asking = sum(words for words, asks in sentences if asks)
    return asking / sum(words for words, _ in sentences) if asking else 1.0


def mentions_time(text: str) -> bool:
    """Return True if a text mentions a time or date."""
    return bool(_MENTIONS_TIME.search(text))


def states_standing_wish(text: str) -> bool:
    """Return True if a text states a standing wish, with words such as "always", "never" or "prefer"."""
    return bool(_STANDING_WISH.search(text))


def find_days(text: str, *, now: int = 0, years: range = range(0)) -> list[tuple[int, int]]:
    """Return the periods that a text names, as the ordinals of their first and last days.

    Dates, months and phrases such as "two weeks ago" are recognized. `now` and `years` mean the same as for
    `parse_query`; if `now` is 0, such phrases are ignored.
    """
    spans = [to_day_span(int(y), int(m), int(d)) for y, m, d in _ISO_DATE.findall(text)]
    for before, month, after, year in _NAMED_DATE.findall(text):
        if month == "may" and not (before or after or year):
            continue  # the verb
        day = int(before or after or 0)
        possible_years = [int(year)] if year else years
        spans += [to_day_span(span, _MONTH_NUMBERS[month.lower()], day) for span in possible_years]
    if now:
        spans += [parse_days_ago(match, now) for match in _AGO.finditer(text)]
    return [span for span in spans if span is not None]


def to_day_span(year: int, month: int, day: int) -> tuple[int, int] | None:
    """Return the ordinals of the first and last day of a month (`day` is 0) or of a single day (both the same).

    Return None if there is no such date.
    """
    try:
        first = date(year, month, day or 1)
        last = first if day else date(year + month // 12, month % 12 + 1, 1) - timedelta(days=1)
    except ValueError:
        return None
    return first.toordinal(), last.toordinal()


def parse_days_ago(match: re.Match[str], now: int) -> tuple[int, int]:
    """Return the ordinals of the first and last day that a phrase such as "two weeks ago" may mean.

    `match` is a match of `_AGO`, and `now` the time in seconds. The period is about as long as the unit: one day for
    "days", a week for "weeks".
    """
    count, unit = match.groups()
    today = EPOCH + now // 86_400
    size = _UNIT_DAYS[unit.lower()] if unit else 1
    number = (_COUNTS.get(count.lower()) or int(count)) if count else 1
    middle = today - size * number
    return middle - size // 2, middle + size // 2


def get_year(day: int) -> int:
    """Return the year of a day, given as an ordinal. For a day outside the calendar, return the nearest valid year."""
    return date.fromordinal(min(max(day, 1), date.max.toordinal())).year

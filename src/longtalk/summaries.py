"""Summaries: what a model wrote about the oldest part of a conversation, to be sent in its place.

A `Summary` is a record. It names what it covers, and it is made from what was sent so far: from the exchanges, and from
the summary before it, so that each one holds all that came before. It is asked for behind the very bytes that were sent
anyhow, which the provider has in its cache.
"""

from __future__ import annotations

import re
import zlib

import msgspec

from longtalk.wires.base import Usage

TAG = "earlier_conversation"
"""What stands around a summary in a request."""
ASKING = 145
"""Tokens, roughly, of what asks for one."""

_ASK = """\
<summary_request>
All of the conversation above this line will soon be replaced by a summary, and the conversation goes on from there.
Write that summary now, for yourself: you will have nothing else. Keep what the user wants and has told about
themselves, names, numbers, dates, what was decided and why, what tools have found, what was promised, and what is
still open. What an {tag} above says and still holds belongs into it too. Leave out greetings and what is over.
Write at most {words} words of plain text, in the language of the conversation. Do not answer anything, do not call
tools, write no introduction: only the summary.
</summary_request>"""

_ERROR = re.compile(
    r"\W*(http\S*\s+)?(status\W+|code\W+|error\W+)*([45]\d\d\b\W*)?("
    r"(error|exception|time-?out)\b(?=\W*$|\s*[:(\[{\d]|\s+(code|occurred|while|in|response|message)\b)"
    r"|internal server error|bad (gateway|request)\b|gateway time-?d?.?out|service (temporarily )?unavailable"
    r"|too many requests|rate limit(ed| exceeded| reached| hit)|(the )?request (has )?timed.?out|timed.?out\b"
    r"|upstream (connect|request|error)|connection (refused|reset|aborted|closed|error|timed)|insufficient.quota"
    r"|(the |our )?(servers?|models?|services?|engine|api)( is| are)?( \w+)? (overloaded|unavailable)\b"
    r"|traceback \(most recent|<!doctype|<html|\{\s*\"(error|detail|message)\""
    r"|(i'?m |i am )?(very |so )?sorry\b|i can(no|')t\b|i cannot\b|i'?m unable|i am unable|as an ai\b)",
    re.IGNORECASE,
)
_INNER = re.compile(rf"(?:[^<\n]{{0,80}}:)?\s*<({TAG}|summary)>(.*?)(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A summary that somebody should ask for."""

    stop: int
    """Of all before this place: where an exchange begins."""
    length: int
    """Tokens that it may have."""
    timeout: float
    """Seconds."""
    predicted: float | None = None
    """What asking for it and the first request with it will cost, in tokens sent anew."""


class Summary(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A summary, and what it covers."""

    text: str
    covers: tuple[tuple[int, int], ...]
    """Places in the whole conversation, as (first, past the last)."""
    model: str = ""
    at: int = 0
    tokens: int = 0
    """How long it is, as counted."""
    usual: int = 0
    """How long those of this conversation mostly are."""
    usage: Usage = Usage()
    """What it took to make it."""
    predicted: float | None = None
    """As in `Wanted`."""
    is_brief: bool = False
    """Whether memory made it: nobody was asked for it."""
    brief: int = 0
    """Tokens of the brief in it …"""
    outline: int = 0
    """… and of outlines."""
    edition: int = 0
    """Of the brief."""

    @property
    def stop(self) -> int:
        return self.covers[-1][1] if self.covers else 0

    def has(self, first: int, stop: int) -> bool:
        """Whether it covers all of these places."""
        return any(start <= first and stop <= end for start, end in self.covers)

    def can_be_of(self, size: int) -> bool:
        """Whether it can be of a conversation with so many entries: it may have come from elsewhere."""
        places = [-1, *(place for span in self.covers for place in span)]
        fits = 0 < self.stop <= size or (self.is_brief and not self.covers)
        return places == sorted(set(places)) and fits and min(self.tokens, self.usual) >= 0


def request(length: int) -> str:
    """What asks for a summary."""
    return _ASK.format(tag=TAG, words=max(30, length * 2 // 3 // 10 * 10))


def problem_with(text: str, tokens: int, covered: int) -> str:
    """Why this can't stand for the conversation; nothing if it can. What it is instead of has so many tokens."""
    if not text.strip():
        return "it is empty"
    if _ERROR.match(text):
        return "it reads like an error or a refusal"
    if tokens >= covered:
        return "it is longer than what it covers"
    letters = sum(map(str.isalnum, text))
    if letters < 12 or letters < len("".join(text.split())) / 2:
        return "it says nothing"
    data = text.encode("utf-8", "replace")
    if len(data) > 400 and len(data) > 8 * len(zlib.compress(data)):
        return "it says the same over and over"
    return ""


def clean(text: str) -> str:
    """The summary itself: a model may repeat the tags that it saw. Inside a text they are what it speaks of."""
    inner = _INNER.match(text)
    return (inner[2] if inner else text).strip()


def joined_spans(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Spans in order, of which those that touch are one."""
    made: list[tuple[int, int]] = []
    for first, stop in sorted(spans):
        if made and first <= made[-1][1]:
            made[-1] = (made[-1][0], max(made[-1][1], stop))
        else:
            made.append((first, stop))
    return tuple(made)

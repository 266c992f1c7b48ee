"""Summaries: texts, written by a model, that are sent in place of the oldest part of a conversation.

A `Summary` is a record that says which entries it covers. Each one is made from the previous summary and the exchanges
since then, so it covers everything older. The prompt that asks for a summary is appended to the last request, which the
provider still has in its cache.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from longtalk.transcript.passages import Passage
from longtalk.usage import Usage

TAG = "earlier_conversation"
"""The name of the tag around a summary in a request."""
PROMPT_TOKENS = 145
"""The approximate number of tokens in the prompt that asks for a summary."""

_PROMPT = """\
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
_TAGGED = re.compile(rf"(?:[^<\n]{{0,80}}:)?\s*<({TAG}|summary)>(.*?)(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL)

_PHRASE = 4
"""The number of consecutive words that count as a phrase of the prompt. Shorter phrases occur in any text."""


class OldEntry(msgspec.Struct, frozen=True):
    """An entry, in readable form, that the app's function replaces with a text."""

    id: str
    role: str
    text: str
    """The text of the entry. If it has none, a note in square brackets of what it contains, such as tool calls."""
    at: int
    """The time when the entry was created, in milliseconds since 1970."""


SummaryWriter: TypeAlias = Callable[[str, Sequence[OldEntry]], Any]
"""A function of the app that writes a summary. It gets the previous text and the entries since then."""


class SummaryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's request for a new summary."""

    stop: int
    """The position at which the part to summarize ends. An exchange begins there."""
    length: int
    """The maximum number of tokens in the summary."""
    timeout: float
    """The maximum time to wait for the summary, in seconds."""
    predicted: float | None = None
    """The expected cost of the summary and of the first request with it, in units of one uncached input token."""
    write: SummaryWriter | None = None
    """The function that writes the summary; None if the conversation's own model writes it."""


class Summary(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The text at the head of requests that replaces older entries: a summary, or the head that memory builds."""

    text: str
    covers: tuple[tuple[int, int], ...]
    """The ranges of entries that the text covers, as positions in the whole conversation: (first, last + 1)."""
    model: str = ""
    at: int = 0
    tokens: int = 0
    """The counted length of the text in tokens."""
    usual: int = 0
    """The typical length of this conversation's summaries, in tokens."""
    usage: Usage = Usage()
    """The usage of the model call that made the summary."""
    predicted: float | None = None
    """The expected cost, as in `SummaryRequest.predicted`."""
    is_brief: bool = False
    """Whether memory built the text from the brief, without a model call."""
    brief: int = 0
    """The number of tokens that the brief takes in the text."""
    outline: int = 0
    """The number of tokens that outlines take in the text."""
    outlined: tuple[tuple[int, int], ...] = ()
    """The exchanges that the text covers only with an outline, as ranges like those in `covers`, but not merged."""
    edition: int = 0
    """The edition of the brief that the text contains (`BriefRecord.edition`)."""
    profile: tuple[str, ...] = ()
    """Digests of the lines of the owner's profile that are sent in front of the text. Their texts are not stored."""
    recalled: int = 0
    """The number of tokens of the passages that the text quotes because they were recalled so often."""
    promoted: tuple[Passage, ...] = ()
    """These passages, in the order of the conversation."""

    @property
    def stop(self) -> int:
        """The position after the last entry that the summary covers; 0 if it covers none."""
        return self.covers[-1][1] if self.covers else 0

    def covers_range(self, first: int, stop: int) -> bool:
        """Return True if the summary covers all entries from position `first` up to, but not including, `stop`."""
        return any(start <= first and stop <= end for start, end in self.covers)

    def is_consistent_with(self, size: int) -> bool:
        """Return True if the summary can belong to a conversation of `size` entries.

        In imported data, ranges may be out of order or beyond the end of the conversation.
        """
        positions = [-1, *(position for span in self.covers for position in span)]
        fits = 0 < self.stop <= size or (self.is_brief and not self.covers)
        outlines = all(first < stop and self.covers_range(first, stop) for first, stop in self.outlined)
        quoted = [-1, *(each.position for each in self.promoted), size]
        in_order = positions == sorted(set(positions)) and quoted == sorted(quoted) and quoted[1:2] != [-1]
        return in_order and fits and outlines and min(self.tokens, self.usual) >= 0


def render_summary_prompt(length: int) -> str:
    """Return the prompt that asks the model for a summary of at most `length` tokens."""
    return _PROMPT.format(tag=TAG, words=max(30, length * 2 // 3 // 10 * 10))


def find_summary_problem(text: str, tokens: int, covered: int) -> str:
    """Return why a text can't be used as a summary, or "" if it can.

    `tokens` is the length of the text in tokens, and `covered` the length of the entries that it would replace.
    """
    if not text.strip():
        return "it is empty"
    if _ERROR.match(text):
        return "it reads like an error or a refusal"
    if _repeats_prompt(text):
        return "it repeats the request for it"
    if tokens >= covered:
        return "it is longer than what it covers"
    letters = sum(map(str.isalnum, text))
    if letters < 12 or letters < len("".join(text.split())) / 2:
        return "it has hardly any words"
    data = text.encode("utf-8", "replace")
    if len(data) > 400 and len(data) > 8 * len(zlib.compress(data)):
        return "it repeats itself"
    return ""


def _repeats_prompt(text: str) -> bool:
    """Return True if at least half of the words of a text are in phrases of the prompt that asks for a summary."""
    words, phrases = _split_phrases(text)
    _, of_prompt = _split_phrases(_PROMPT)
    known = set(of_prompt)
    repeated = {i + k for i, phrase in enumerate(phrases) if phrase in known for k in range(_PHRASE)}
    return len(repeated) * 2 >= max(1, len(words))


def _split_phrases(text: str) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the words of a text, and its phrases: one for each word that is followed by enough other words."""
    words = re.findall(r"\w+", text.lower())
    return words, [tuple(words[i : i + _PHRASE]) for i in range(len(words) - _PHRASE + 1)]


def strip_summary_tags(text: str) -> str:
    """Return a summary without the tags that the model may have put around it. Tags inside the text are kept."""
    tagged = _TAGGED.match(text)
    return (tagged[2] if tagged else text).strip()

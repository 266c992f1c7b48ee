"""Promotion: quote in the head of an epoch what the epoch before it has recalled again and again.

Recalled text follows the message of one turn, so the provider never has it in its cache. The head of an epoch is read
from the cache. A passage that was recalled in so many turns that this has cost more than standing in the head would
have (`Meter.compute_promotion_turns`) is quoted there in the next epoch, in the form of recalled text, with its date.
While it stands there, turns that need it are counted, but don't quote it again. If it is needed less in an epoch, the
next head is without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from longtalk.memory.recall.config import TAG
from longtalk.tokens import Counter
from longtalk.transcript.passages import Passage
from longtalk.wires.text import wrap_in_tag


class Promoted(msgspec.Struct, frozen=True):
    """The passages that the head of an epoch quotes, with their text."""

    text: str = ""
    """The quotes, with a tag around them; empty if there are none."""
    tokens: int = 0
    passages: tuple[Passage, ...] = ()
    """The passages, in the order of the conversation."""


def render_promoted(passages: Sequence[Passage], budget: int, counter: Counter) -> Promoted:
    """Return those of these passages, first ones first, that fit into `budget` tokens together, including the tag."""
    found = Promoted()
    for passage in passages:
        chosen = sorted((*found.passages, passage), key=lambda each: (each.position, each.start))
        text = wrap_in_tag(TAG, _join_quotes(each.text for each in chosen).rstrip("\n"))
        tokens = counter.count(text)
        if tokens <= budget:
            found = Promoted(text, tokens, tuple(chosen))
    bare = tuple([msgspec.structs.replace(each, text="") for each in found.passages])
    return msgspec.structs.replace(found, passages=bare)


def extract_promoted(text: str) -> str:
    """Return the quotes in the text of a head, with their tag; empty if there are none."""
    _, begin, rest = text.partition(f"<{TAG}>\n")
    quotes, end, _ = rest.partition(f"</{TAG}>")
    return f"{begin}{quotes}{end}" if end else ""


def _join_quotes(quotes: Iterable[str]) -> str:
    """Return quotes, each of which begins with a line for its date, without dates that are repeated."""
    lines, date = [], ""
    for quote in quotes:
        first, newline, rest = quote.partition("\n")
        lines.append(rest if first == date else quote)
        date = first if newline else date
    return "".join(lines)

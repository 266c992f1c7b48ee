"""What stands at the head of requests in place of the exchanges that memory lets go of: the brief, and outlines.

It is data: one message that nobody said, between tags that nothing in it can close. The brief comes first, then a
summary if one had to stand in for a card, then what the newest of these exchanges were about, with most detail for the
last one. All of it together has its budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from longtalk.memory.book import Book
from longtalk.memory.brief import apply, wire
from longtalk.memory.notes import enclosed, harmless, shortened, shown_line
from longtalk.memory.outline import outline
from longtalk.memory.schema import Brief
from longtalk.summaries import TAG, Summary
from longtalk.tokens import Counter, of_message
from longtalk.transcript import Entry
from longtalk.wires import said
from longtalk.wires.base import Usage, Wire, quoted

_TAG = "outline"
_LEAST = 16
"""Tokens below which nothing is told of an exchange."""
_ASKED = 100
"""Characters that are told of a question."""


def head(
    book: Book,
    config: Brief,
    counter: Counter,
    wire_: Wire,
    *,
    covers: tuple[tuple[int, int], ...],
    gone: Sequence[Sequence[Entry]],
    room: int,
    told: Summary | None = None,
    before: str = "",
) -> Summary:
    """The head of requests, in place of these entries. `gone` are the exchanges to outline, the newest last.

    Outlines have so much `room`, and what the marks around all of it take is theirs to give. `told` is a summary that
    stands in for a card, `before` are outlines that were there.
    """
    notes = apply(book.notes, [], config, counter).notes
    brief = wire(notes, config)
    summary = quoted("summary", harmless(told.text)) if told else ""
    parts = [part for part in (brief, summary, before) if part]

    def measured(more: Sequence[str] = ()) -> int:
        text = "\n".join((*parts, *more))
        return of_message(wire_.quote(TAG, text), counter) if text else 0

    bare = measured()
    most = min(config.budget + room + (counter.count(summary) if summary else 0), bare + room)
    lines: list[str] = []
    for entries in reversed(gone):
        left = most - measured([_enclosed(lines)])
        found = _told(entries, left if entries is gone[0] else left * 2 // 3, counter) if left >= _LEAST else ""
        if not found or measured([_enclosed([found, *lines])]) > most:
            break
        lines.insert(0, found)
    if lines:
        parts.append(_enclosed(lines))
    tokens = measured()
    return Summary(
        text="\n".join(parts),
        covers=covers,
        tokens=tokens,
        usual=tokens,
        brief=counter.count(brief) if brief else 0,
        outline=tokens - bare if lines else counter.count(before) if before else 0,
        usage=told.usage if told else Usage(),
        edition=book.edition,
        is_brief=True,
    )


def fresh(book: Book, config: Brief, counter: Counter, there: Summary | None, beside: Iterable[str] = ()) -> str:
    """What the app has put into the brief and a head does not say, nor what stands beside earlier messages."""
    texts = (there.text if there else "", *beside)
    shown = {line for text in texts for line in text.splitlines()}
    keys = {field.name: field.key for field in config.schema.fields}
    lines = [line for line in apply(book.notes, [], config, counter).notes.lines if not line.entry]
    told = [shown_line(keys[line.field], line.text, line.shown) for line in lines]
    return enclosed(line for line in told if line not in shown)


def outlines(there: Summary | None) -> str:
    """The outlines in a head."""
    found = there.text.rpartition(f"<{_TAG}>\n")[1:] if there is not None and there.outline else ("", "")
    return "".join(found)


def _enclosed(told: Sequence[str]) -> str:
    return quoted(_TAG, "\n".join(told))


def _told(entries: Sequence[Entry], budget: int, counter: Counter) -> str:
    """What an exchange was about, in at most so many tokens."""
    asked = next((said(entry) for entry in entries if entry.role == "user"), "")
    answer = next((text for entry in reversed(entries) if entry.role == "assistant" and (text := said(entry))), "")
    question = f"User: {harmless(shortened(' '.join(asked[:400].split()), _ASKED))}" if asked.strip() else ""
    left = budget - counter.count(question)
    if left < 0:
        return ""
    lines = harmless(outline(answer, budget=left - 2, counter=counter)) if left > _LEAST else ""
    return "\n".join(part for part in (question, f"You:\n{lines}" if lines else "") if part)

"""The head of a request: the brief and the outlines that replace the exchanges that were left out.

The head is data, not an instruction: a message that no participant wrote, inside tags that its content can't close. The
brief comes first, then a summary if a card is missing, then outlines of the newest replaced exchanges, the last of them
with the most detail. The whole head, including its tags and frame, has a token budget: an outline is shortened until it
fits. The head counts as covering only the exchanges that it describes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from longtalk.memory.brief.apply import apply
from longtalk.memory.brief.budget import cut_to_tokens
from longtalk.memory.brief.lines import enclose, escape_tags, render_brief, render_line, shorten
from longtalk.memory.brief.record import BriefRecord
from longtalk.memory.brief.schema import Brief
from longtalk.memory.outline import outline
from longtalk.memory.profile.lines import PROFILE_TAG, TurnProfile
from longtalk.memory.promotion import Promoted
from longtalk.memory.summary import TAG, Summary
from longtalk.tokens import Counter, count_message
from longtalk.transcript.ranges import Span, merge_spans
from longtalk.transcript.transcript import Entry
from longtalk.usage import Usage
from longtalk.wires import text_if_readable
from longtalk.wires.protocol import Wire
from longtalk.wires.text import wrap_in_tag

_OUTLINE_TAG = "outline"
_MIN_TOKENS = 16
"""The number of tokens that must remain of the budget to outline another exchange."""
_QUESTION_CHARS = 100
"""The maximum number of characters of a user's message that an outline quotes."""


def build_head(
    record: BriefRecord,
    config: Brief,
    counter: Counter,
    wire: Wire,
    *,
    previous: Summary | None,
    dropped: Sequence[Span],
    exchanges: Mapping[Span, Sequence[Entry]],
    outline_budget: int,
    substitute: Summary | None = None,
    keep_outlines: bool = False,
    profile: TurnProfile = TurnProfile(),  # noqa: B008
    promoted: Promoted = Promoted(),  # noqa: B008
) -> Summary:
    """Return the head of a request, which replaces the exchanges in `dropped` and those that `previous` replaced.

    `exchanges` are outlined, newest last, within `outline_budget` tokens; the tags around the whole head count toward
    this budget. `substitute` is a summary to include because a card is missing. With `keep_outlines`, the outlines of
    the previous head are included again. `profile` is sent in front of the text, which does not contain it. `promoted`
    has passages to quote before the outlines, which are not part of their budget.
    """
    content = apply(record.content, [], config, counter).content
    brief = render_brief(content, config)
    summary = wrap_in_tag("earlier_summary", escape_tags(substitute.text)) if substitute else ""
    old_outlines = _extract_outlines(previous) if keep_outlines else ""
    parts = [part for part in (brief, summary, old_outlines) if part]

    def measure(outlines: Iterable[str] | None = None) -> int:
        text = "\n".join(parts if outlines is None else (*parts, _enclose_outlines(outlines)))
        return count_message(wire.quote(TAG, text), counter) if text else 0

    base_tokens = measure()
    summary_tokens = counter.count(summary) if summary else 0
    limit = min(config.budget + summary_tokens, base_tokens) + outline_budget
    outlines: dict[Span, str] = {}
    spans = sorted(exchanges, reverse=True)
    for span in spans:
        newer = list(outlines.values())
        used = measure(newer)
        if limit - used < _MIN_TOKENS:
            break
        allowed = limit if span == spans[-1] else used + (limit - used) * 2 // 3

        def measure_with(outline: str, newer: Sequence[str] = newer) -> int:
            return measure([outline, *newer])

        if rendered := _outline_exchange(exchanges[span], used, allowed, measure_with):
            outlines = {span: rendered, **outlines}
    if outlines:
        parts.append(_enclose_outlines(outlines.values()))
    outline_tokens = measure() - base_tokens if outlines else counter.count(old_outlines) if old_outlines else 0
    if promoted.text:
        # Outlines come last, where `_extract_outlines` looks for them.
        parts.insert(sum(map(bool, (brief, summary))), promoted.text)
    tokens = measure()
    lines = profile.render(profile.digests)
    profile_tokens = count_message(wire.quote(PROFILE_TAG, lines), counter) if lines else 0
    kept_spans = previous.outlined if previous and old_outlines else ()
    return Summary(
        text="\n".join(parts),
        covers=_find_covered(record, previous, dropped, (*outlines, *kept_spans), substitute, has_brief=bool(brief)),
        tokens=tokens + profile_tokens,
        usual=tokens + profile_tokens,
        brief=counter.count(brief) if brief else 0,
        outline=outline_tokens,
        outlined=tuple(sorted((*outlines, *kept_spans))),
        usage=substitute.usage if substitute else Usage(),
        edition=record.edition,
        is_brief=True,
        profile=profile.digests,
        recalled=promoted.tokens,
        promoted=promoted.passages,
    )


def render_unsent_app_lines(
    record: BriefRecord, config: Brief, counter: Counter, head: Summary | None, other_texts: Iterable[str] = ()
) -> str:
    """Return the app's lines of the brief that the request lacks, inside the tags of a brief; empty if it lacks none.

    The request already contains `head`, and `other_texts` next to earlier messages.
    """
    texts = (head.text if head else "", *other_texts)
    sent = {line for text in texts for line in text.splitlines()}
    keys = {field.name: field.key for field in config.schema.fields}
    lines = [line for line in apply(record.content, [], config, counter).content.lines if not line.entry]
    rendered = [render_line(keys[line.field], line.text, line.shown) for line in lines]
    return enclose(line for line in rendered if line not in sent)


def _extract_outlines(head: Summary | None) -> str:
    """Return the outlines in a head, with their tags; empty if there are none."""
    if head is None or not head.outline:
        return ""
    return "".join(head.text.rpartition(f"<{_OUTLINE_TAG}>\n")[1:])


def _enclose_outlines(outlines: Iterable[str]) -> str:
    return wrap_in_tag(_OUTLINE_TAG, "\n".join(outlines))


class _FunctionCounter(msgspec.Struct, frozen=True):
    """A `Counter` made from a function that counts tokens."""

    count: Callable[[str], int]


def _outline_exchange(entries: Sequence[Entry], used: int, limit: int, measure: Callable[[str], int]) -> str:
    """Return the user's question and an outline of the answer, shortened until they fit; empty if nothing fits.

    `measure` returns the number of tokens of the whole head with a given outline. This number may be at most `limit`;
    without an outline it is `used`. The question takes at most half of the difference.
    """
    user_text = next((text_if_readable(entry) for entry in entries if entry.role == "user"), "")
    answer = next(
        (text for entry in reversed(entries) if entry.role == "assistant" and (text := text_if_readable(entry))), ""
    )

    def render(question: str, lines: str) -> str:
        parts = (f"User: {escape_tags(question)}" if question else "", f"You:\n{escape_tags(lines)}" if lines else "")
        return "\n".join(filter(None, parts))

    question_limit = (used + limit) // 2 if answer.strip() else limit
    question = shorten(" ".join(user_text[:400].split()), _QUESTION_CHARS)
    question = cut_to_tokens(question, question_limit, _FunctionCounter(lambda text: measure(render(text, ""))))
    if measure(render(question, "")) > question_limit:
        question = ""
    return render(
        question, outline(answer, budget=limit, counter=_FunctionCounter(lambda text: measure(render(question, text))))
    )


def _find_covered(
    record: BriefRecord,
    previous: Summary | None,
    dropped: Sequence[Span],
    outlined: Sequence[Span],
    substitute: Summary | None,
    *,
    has_brief: bool,
) -> tuple[Span, ...]:
    """Return which of the left-out exchanges a new head covers.

    The brief covers the exchanges that cards were made from, the substitute those it summarizes, and an outline its own
    exchange.
    """
    before, old_outlined = (previous.covers, previous.outlined) if previous else ((), ())
    by_text = _subtract(before, old_outlined) if has_brief or substitute else []
    by_card = [span for span in (*old_outlined, *dropped) if has_brief and span[1] <= record.covers]
    by_summary = [span for span in (*old_outlined, *dropped) if substitute and substitute.covers_range(*span)]
    return tuple(merge_spans((*by_text, *by_card, *by_summary, *outlined)))


def _subtract(spans: Iterable[Span], minus: Sequence[Span]) -> list[Span]:
    """Return the parts of `spans` that are outside all spans in `minus`, which must be in ascending order."""
    found = []
    for start, stop in spans:
        for first, end in minus:
            if start <= first and end <= stop:
                found.append((start, first))
                start = end
        found.append((start, stop))
    return found

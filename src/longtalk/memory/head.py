"""The head of a request: the brief and the outlines that replace the exchanges that were left out.

The head is data, not an instruction: one message that no participant wrote, inside tags that its content can't close.
The brief comes first, then a summary if a card is missing, then outlines of the newest replaced exchanges, the last of
them with the most detail. The whole head has a token budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from longtalk.memory.brief.apply import apply
from longtalk.memory.brief.lines import enclose, escape_tags, render_brief, render_line, shorten
from longtalk.memory.brief.record import BriefRecord
from longtalk.memory.brief.schema import Brief
from longtalk.memory.outline import outline
from longtalk.memory.summary import TAG, Summary
from longtalk.tokens import Counter, count_message
from longtalk.transcript.transcript import Entry
from longtalk.usage import Usage
from longtalk.wires import text_if_readable
from longtalk.wires.protocol import Wire
from longtalk.wires.text import wrap_in_tag

_OUTLINE_TAG = "outline"
_MIN_TOKENS = 16
"""An exchange is outlined only if at least this many tokens of the budget remain."""
_QUESTION_CHARS = 100
"""The maximum number of characters of a user's message that an outline quotes."""


def build_head(
    record: BriefRecord,
    config: Brief,
    counter: Counter,
    wire: Wire,
    *,
    covers: tuple[tuple[int, int], ...],
    exchanges: Sequence[Sequence[Entry]],
    outline_budget: int,
    substitute: Summary | None = None,
    old_outlines: str = "",
) -> Summary:
    """Return the head of a request, which replaces the entries in the ranges `covers`.

    `exchanges` are outlined, newest last, within `outline_budget` tokens; the tags around the whole head count toward
    this budget. `substitute` is a summary to include because a card is missing, and `old_outlines` is the text of the
    outlines in an earlier head, to be included again.
    """
    content = apply(record.content, [], config, counter).content
    brief = render_brief(content, config)
    summary = wrap_in_tag("summary", escape_tags(substitute.text)) if substitute else ""
    parts = [part for part in (brief, summary, old_outlines) if part]

    def measure(more: Sequence[str] = ()) -> int:
        text = "\n".join((*parts, *more))
        return count_message(wire.quote(TAG, text), counter) if text else 0

    base_tokens = measure()
    summary_tokens = counter.count(summary) if summary else 0
    limit = min(config.budget + summary_tokens, base_tokens) + outline_budget
    outlines: list[str] = []
    for entries in reversed(exchanges):
        remaining = limit - measure([_enclose_outlines(outlines)])
        budget = remaining if entries is exchanges[0] else remaining * 2 // 3
        rendered = _outline_exchange(entries, budget, counter) if remaining >= _MIN_TOKENS else ""
        if not rendered or measure([_enclose_outlines([rendered, *outlines])]) > limit:
            break
        outlines.insert(0, rendered)
    if outlines:
        parts.append(_enclose_outlines(outlines))
    tokens = measure()
    return Summary(
        text="\n".join(parts),
        covers=covers,
        tokens=tokens,
        usual=tokens,
        brief=counter.count(brief) if brief else 0,
        outline=tokens - base_tokens if outlines else counter.count(old_outlines) if old_outlines else 0,
        usage=substitute.usage if substitute else Usage(),
        edition=record.edition,
        is_brief=True,
    )


def render_unsent_app_lines(
    record: BriefRecord, config: Brief, counter: Counter, head: Summary | None, other_texts: Iterable[str] = ()
) -> str:
    """Return the app's lines of the brief that the request does not contain yet, in the tags of a brief; "" if none.

    The request already contains `head` and `other_texts`, which are sent next to earlier messages.
    """
    texts = (head.text if head else "", *other_texts)
    sent = {line for text in texts for line in text.splitlines()}
    keys = {field.name: field.key for field in config.schema.fields}
    lines = [line for line in apply(record.content, [], config, counter).content.lines if not line.entry]
    rendered = [render_line(keys[line.field], line.text, line.shown) for line in lines]
    return enclose(line for line in rendered if line not in sent)


def extract_outlines(head: Summary | None) -> str:
    """Return the outlines in a head, with their tags; empty if there are none."""
    if head is None or not head.outline:
        return ""
    return "".join(head.text.rpartition(f"<{_OUTLINE_TAG}>\n")[1:])


def _enclose_outlines(outlines: Sequence[str]) -> str:
    return wrap_in_tag(_OUTLINE_TAG, "\n".join(outlines))


def _outline_exchange(entries: Sequence[Entry], budget: int, counter: Counter) -> str:
    """Return the user's question and an outline of the answer in about `budget` tokens; empty if nothing fits."""
    user_text = next((text_if_readable(entry) for entry in entries if entry.role == "user"), "")
    answer = next(
        (text for entry in reversed(entries) if entry.role == "assistant" and (text := text_if_readable(entry))), ""
    )
    user_line = " ".join(user_text[:400].split())
    question = f"User: {escape_tags(shorten(user_line, _QUESTION_CHARS))}" if user_text.strip() else ""
    remaining = budget - counter.count(question)
    if remaining < 0:
        return ""
    lines = escape_tags(outline(answer, budget=remaining - 2, counter=counter)) if remaining > _MIN_TOKENS else ""
    return "\n".join(part for part in (question, f"You:\n{lines}" if lines else "") if part)

"""Capture: ask the model for notes, and update the brief with the cards or tool calls that it returns.

A card that is unreadable, too long or useless changes nothing, and the request for it counts as failed. When too many
of the last requests failed, the other capture mode is used from the next epoch on. The mode does not change within an
epoch, because tools are part of the cached prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from longtalk.memory.brief.apply import apply
from longtalk.memory.brief.lines import Line
from longtalk.memory.brief.operations import Operation, parse_operations
from longtalk.memory.brief.record import BriefRecord, CaptureMode, CardKind, read_brief_record, with_brief_record
from longtalk.memory.brief.schema import Brief
from longtalk.memory.cards.prompt import CATCH_UP, describe_keys, limit_tokens, read_card, render_request
from longtalk.tokens import Counter
from longtalk.tools import Tool, tool
from longtalk.transcript.transcript import Transcript
from longtalk.wires import text_if_readable

TOOL_NAME = "update_memory"
_MAX_SWITCHES = 2
"""How many times the capture mode may change: once to the other mode, and once back."""
_READ = 200
"""The maximum number of entries that are searched for the origin of a line."""

_replace = msgspec.structs.replace


def render_card_request(config: Brief, way: CaptureMode, *, catch_up: bool) -> str:
    """Return the instruction that asks the model for a card or, in the mode "tool", for a call to the memory tool."""
    if way == "tool":
        what = CATCH_UP if catch_up else "what this turn changes"
        return f"Before you answer, call {TOOL_NAME} once with {what}. Do not mention it."
    return render_request(_descriptions(config), lists=_list_keys(config), catch_up=catch_up)


def requested_card(text: str) -> CardKind:
    """Return which kind of card an instruction asks for, or "" if it asks for none."""
    asks = "<MEMORY_CARD>" in text or f"call {TOOL_NAME} once" in text
    return "" if not asks else "catch_up" if CATCH_UP in text else "small"


def make_tool(config: Brief) -> Tool:
    """Return the tool that a model calls to update the brief."""

    def update_memory(changes: Annotated[dict[str, Any], "The changes, by key."]) -> dict[str, Any]:
        return changes

    example = '{"changes": {"goal": "…", "+facts": ["…"]}}'
    keys = describe_keys(_descriptions(config), lists=_list_keys(config))
    text = f"Note what matters later in this conversation, as {example}. {keys}"
    return tool(update_memory, name=TOOL_NAME, description=text, idempotent=True)


def _descriptions(config: Brief) -> dict[str, str]:
    return {field.key: field.name.replace("_", " ") for field in config.schema.fields}


def _list_keys(config: Brief) -> list[str]:
    return [field.key for field in config.schema.fields if field.kind == "list"]


def apply_cards(
    transcript: Transcript, cards: Sequence[str], config: Brief, counter: Counter, *, asked: str, at: int
) -> tuple[Transcript, bool]:
    """Update the brief with the memory cards in the last answer.

    `asked` is the kind of card that was requested, and `at` the time in milliseconds. Return the new transcript, and
    whether any card was usable.
    """
    heard = False
    gone: tuple[Line, ...] = ()
    for content in cards:
        read = read_card(content)
        if isinstance(read, str):
            continue
        made = limit_tokens(read[0], counter, catch_up=asked == "catch_up")
        refused = read[1] if len(made) == len(read[0]) else [*read[1], "It is too long."]
        taken = _take(transcript, made, refused, config, counter, covers=True, at=at, gone=gone)
        if taken is not None:
            transcript, heard = taken, True
            gone = read_brief_record(taken).dropped
    return transcript, heard


def apply_tool_call(
    transcript: Transcript, changes: object, config: Brief, counter: Counter, *, asked: str, at: int
) -> tuple[Transcript, str]:
    """Update the brief with the changes that the model passed to the memory tool.

    `asked` is the kind of card that was requested; a call that was not requested does not mark older entries as
    covered. `at` is the time in milliseconds. Return the new transcript, and "" or the reason why the call was refused.
    """
    made, refused = parse_operations(changes)
    taken = _take(transcript, made, refused, config, counter, covers=bool(asked), at=at)
    return taken or transcript, "" if taken else " ".join(refused) or "None of these changes could be applied."


def _take(
    transcript: Transcript,
    made: list[Operation],
    refused: list[str],
    config: Brief,
    counter: Counter,
    *,
    covers: bool,
    at: int,
    gone: tuple[Line, ...] = (),
) -> Transcript | None:
    """Return the transcript with these changes applied to its brief, or None if all of them were refused.

    `covers` says that the brief now covers all entries. `gone` are lines that earlier cards of the same answer dropped.
    """
    if refused and not made:
        return None
    record = read_brief_record(transcript)
    # These changes must count as newer than every line, whatever the clock says.
    at = max(at, 1 + max((line.seen for line in record.content.lines), default=0))
    applied = apply(record.content, made, config, counter, entry=transcript.head or "", at=at)
    if made and len(applied.refused) >= len(made) and applied.content == record.content:
        return None
    record = _replace(
        record,
        content=_replace(applied.content, lines=tuple(_with_origins(applied.content.lines, record, transcript))),
        covers=transcript.size if covers else record.covers,
        asks=0 if covers else record.asks,
        dropped=(*gone, *applied.removed, *applied.dropped),
    )
    return with_brief_record(transcript, record)


def _with_origins(lines: Sequence[Line], record: BriefRecord, transcript: Transcript) -> Sequence[Line]:
    """Return the lines, with the entry that shares the most words with a new line as the source of that line.

    A new line that shares fewer than half of its words with any entry keeps its present source.
    """
    known = {line.id for line in record.content.lines}
    if all(line.id in known for line in lines):
        return lines
    from longtalk.memory.terms import terms

    first = max(transcript.index_of(record.covers), len(transcript) - _READ, 0)
    texts = [
        (transcript[i].id, frozenset(terms(text_if_readable(transcript[i])))) for i in range(first, len(transcript) - 1)
    ]
    return [
        line if line.id in known else _replace(line, entry=_origin(frozenset(terms(line.text)), texts, line.entry))
        for line in lines
    ]


def _origin(words: frozenset[str], texts: Sequence[tuple[str, frozenset[str]]], otherwise: str) -> str:
    shared = [(len(words & held), entry) for entry, held in texts]
    most = max((number for number, _ in shared), default=0)
    if not words or 2 * most < len(words):
        return otherwise
    return next(entry for number, entry in shared if number == most)


def record_ask(
    transcript: Transcript, *, heard: bool, raw: int, way: CaptureMode, other: bool
) -> tuple[Transcript, CaptureMode | None]:
    """Record whether a request for a card succeeded (`heard`), and decide whether to change the capture mode.

    `raw` is the position from which exchanges are sent unchanged, `way` the present capture mode, and `other` says that
    the other mode is available. Return the new transcript, and the capture mode from the next epoch on if it changes,
    else None.
    """
    record = read_brief_record(transcript)
    tally = record.tally.with_ask(failed=not heard)
    asks = 0 if heard else record.asks_since(raw) + 1
    record = _replace(record, marks=tally.marks, raw=raw, asks=asks, dropped=record.dropped if heard else ())
    turned: CaptureMode | None = None
    if tally.fails_too_often and other and (record.way or way) == way and record.turned < _MAX_SWITCHES:
        turned = "sentinel" if way == "tool" else "tool"
        record = _replace(record, way=turned, turned=record.turned + 1, marks="")
    return with_brief_record(transcript, record), turned

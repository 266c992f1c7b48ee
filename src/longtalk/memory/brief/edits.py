"""Edits that the app makes to the brief.

An edit is applied completely or not at all: if an operation can't be applied, `InputError` is raised with the reasons.
No later request contains a line that the app removed. Lines that the app wrote have no source entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from longtalk.errors import InputError
from longtalk.memory.brief.apply import apply, line_ids
from longtalk.memory.brief.lines import Line, line_id, normalize, render_brief
from longtalk.memory.brief.operations import MAX_TEXTS, Operation
from longtalk.memory.brief.record import BriefRecord, read_brief_record, with_brief_record
from longtalk.memory.brief.schema import Brief
from longtalk.tokens import Counter
from longtalk.transcript.transcript import Transcript, now

_LONGEST = 4_000
"""The maximum number of characters of a text in an edit. Far fewer of them are sent."""
_MAX_REASONS = 5
"""The maximum number of reasons that an error message lists."""

_replace = msgspec.structs.replace


def edit_brief(transcript: Transcript, changes: Sequence[Operation], config: Brief, counter: Counter) -> Transcript:
    """Return the transcript with these changes applied to its brief. Raises `InputError` if any change is refused."""
    _check(changes)
    record = read_brief_record(transcript)
    # This edit must count as newer than every line, even within the same millisecond.
    at = max(now(), 1 + max((line.seen for line in record.content.lines), default=0))
    applied = apply(record.content, changes, config, counter, at=at)
    if applied.refused:
        names = ", ".join(field.name for field in config.schema.fields)
        hidden = len(applied.refused) - _MAX_REASONS
        more = f" And {hidden} more." if hidden > 0 else ""
        raise InputError(f"{' '.join(applied.refused[:_MAX_REASONS])}{more} The fields are {names}.")
    if applied.content == record.content:
        return transcript
    return with_brief_record(
        transcript, _without(record, applied.removed, content=applied.content, dropped=applied.dropped)
    )


def revoke_line(
    transcript: Transcript, line: str, config: Brief, counter: Counter, removed: Iterable[Line]
) -> Transcript:
    """Return the transcript with this line removed from its brief, so that only the app can add the line again.

    `line` is the id of a line that is in the brief now, or of one in `removed`, the lines that were in it earlier.
    Raises `InputError` for any other id.
    """
    record = read_brief_record(transcript)
    if any(each.id == line for each in record.content.lines):
        return edit_brief(transcript, [Operation.revoke(line)], config, counter)
    # A line that was dropped may still be in the head of requests, and the model may state it again.
    found = next((each for each in removed if each.id == line), None)
    if found is None:
        raise InputError(f"This brief has no line with the id {line!r}. Take the id from `lines` or `archived`.")
    ids = dict.fromkeys((*record.content.revoked, *line_ids(found)))
    return with_brief_record(
        transcript, _without(record, (found,), content=_replace(record.content, revoked=tuple(ids)), dropped=())
    )


def _without(record: BriefRecord, removed: Sequence[Line], **members: Any) -> BriefRecord:
    """Return the record after the app has removed these lines; `members` are the record's other new values."""
    members["dropped"] = (*removed, *members["dropped"])
    return _replace(record, edition=record.edition + bool(removed), **members)


def operations_from(brief: object) -> list[Operation]:
    """Return the operations that set each field in a mapping to its text or texts. An empty list clears the field.

    Raises `InputError` if `brief` is not such a mapping.
    """
    if not isinstance(brief, Mapping):
        raise InputError(f"`brief` must map fields to texts, such as {{'goal': '…'}}, not {brief!r}.")
    made = []
    for field, texts in brief.items():
        listed = texts if isinstance(texts, list | tuple) else (texts,)
        made.append(Operation.set(field, *listed) if listed else Operation.clear(field))
    _check(made)
    return made


def _check(changes: Sequence[Operation]) -> None:
    """Raise `InputError` for a value that is not a string, a text that is too long, or too many texts."""
    for change in changes:
        if not isinstance(change.field, str):
            raise InputError(f"A field of the brief must be named by a string, not {type(change.field).__name__}.")
        for text in (*change.texts, change.answer):
            if not isinstance(text, str):
                raise InputError(f"A line of the brief must be a string, not {type(text).__name__}.")
            if len(text) > _LONGEST:
                raise InputError(f"A line of the brief has at most {_LONGEST:,} characters, not {len(text):,}.")
    if (texts := sum(len(change.texts) for change in changes)) > MAX_TEXTS:
        raise InputError(f"One edit of the brief takes at most {MAX_TEXTS} texts, not {texts:,}.")


def render_record(record: BriefRecord, config: Brief, counter: Counter) -> str:
    """Return the brief in a record as it is sent to the model; empty if the brief has no lines."""
    return render_brief(apply(record.content, [], config, counter).content, config)


def list_removed(books: Iterable[BriefRecord]) -> tuple[Line, ...]:
    """Return the lines that were dropped, cut or removed over time and are no longer in the brief in full, newest last.

    `books` are all brief records of the conversation, oldest first.
    """
    found: dict[str, Line] = {}
    last = BriefRecord()
    for record in books:
        if record.dropped != last.dropped:
            for line in record.dropped:
                found.pop(line.id, None)
                found[line.id] = line
        last = record
    whole = {line_id(line.field, normalize(line.text)) for line in last.content.lines}
    there = {line.id for line in last.content.lines if line.id in whole}
    return tuple(line for line in found.values() if line.id not in there)

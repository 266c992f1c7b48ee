"""Edits that the app makes to the brief.

An edit is applied completely or not at all: if any operation can't be applied, `InputError` is raised with the reasons.
A line that the app has removed is not sent in later requests. Lines that the app wrote have no source entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from longtalk.errors import InputError
from longtalk.memory.brief.app_lines import with_app_lines
from longtalk.memory.brief.apply import apply, list_line_ids
from longtalk.memory.brief.corrections import add_corrections
from longtalk.memory.brief.lines import BriefContent, Line, make_line_id, normalize, render_brief
from longtalk.memory.brief.operations import MAX_TEXTS, Operation
from longtalk.memory.brief.record import BriefRecord, read_brief_record, with_brief_record
from longtalk.memory.brief.schema import Brief
from longtalk.tokens import Counter
from longtalk.transcript.transcript import Transcript, now

_MAX_CHARS = 4_000
"""The maximum number of characters in a text of an edit. The token limits of the fields usually allow far fewer."""
_MAX_REASONS = 5
"""The maximum number of reasons that an error message lists."""

_replace = msgspec.structs.replace


def edit_brief(transcript: Transcript, changes: Sequence[Operation], config: Brief, counter: Counter) -> Transcript:
    """Return the transcript with these changes applied to its brief. Raises `InputError` if any change is refused."""
    _check_operations(changes)
    record = read_brief_record(transcript)
    # This edit must count as newer than every line, even within the same millisecond.
    at = max(now(), 1 + max((line.seen for line in record.content.lines), default=0))
    applied = apply(record.content, changes, config, counter, at=at)
    if applied.refused:
        names = ", ".join(field.name for field in config.schema.fields)
        hidden = len(applied.refused) - _MAX_REASONS
        more = f" {hidden} more changes were refused." if hidden > 0 else ""
        raise InputError(f"{' '.join(applied.refused[:_MAX_REASONS])}{more} The fields are {names}.")
    if applied.content == record.content:
        return transcript
    edited = with_brief_record(transcript, _remove_lines(record, applied.removed, applied.content, applied.dropped))
    return with_app_lines(edited, applied.dropped, applied.removed)


def revoke_line(
    transcript: Transcript, line: str, config: Brief, counter: Counter, removed: Iterable[Line]
) -> Transcript:
    """Return the transcript with this line removed from its brief for good: only the app can add the line again.

    `line` is the id of a line that is in the brief now, or that was in it earlier and is listed in `removed`. Raises
    `InputError` for any other id.
    """
    record = read_brief_record(transcript)
    if any(each.id == line for each in record.content.lines):
        return edit_brief(transcript, [Operation.revoke(line)], config, counter)
    # A line that was dropped may still be in the head of requests, and the model may state it again.
    dropped_line = next((each for each in removed if each.id == line), None)
    if dropped_line is None:
        raise InputError(f"This brief has no line with the id {line!r}. Take the id from `lines` or `archived`.")
    ids = dict.fromkeys((*record.content.revoked, *list_line_ids(dropped_line)))
    content = _replace(record.content, revoked=tuple(ids))
    return with_brief_record(transcript, _remove_lines(record, (dropped_line,), content, ()))


def restore_line(transcript: Transcript, line: Line, config: Brief, counter: Counter) -> Transcript:
    """Return the transcript with a line back in its brief that had left it: with the same source and the same dates.

    The model may state it again. In a field with one text, it replaces that. Raises `InputError` if there is no such
    field any more, or no room.
    """
    record = read_brief_record(transcript)
    content, field = record.content, config.schema.find(line.field)
    if any(each.id == line.id and each.text == line.text for each in content.lines):
        return transcript
    if field is None:
        raise InputError(f"The brief has no field {line.field!r} any more: add the text to another one.")
    is_one = field.kind == "text"
    others = [each for each in content.lines if each.id != line.id and not (is_one and each.field == field.name)]
    replaced = [each for each in content.lines if each.id != line.id and each not in others]
    place = next((i for i, each in enumerate(others) if each.at > line.at), len(others))
    allowed = set(list_line_ids(line))
    revoked = tuple(each for each in content.revoked if each not in allowed)
    # A line that was last stated long ago may not fit, unless it counts as the newest.
    newest = max((now(), *(each.seen + 1 for each in content.lines)))
    for seen in (line.seen, newest):
        back = _replace(line, seen=seen)
        applied = apply(BriefContent((*others[:place], back, *others[place:]), revoked), [], config, counter)
        if any(each.id == line.id for each in applied.content.lines):
            break
    else:
        raise InputError(f"The brief has no room for {line.text!r}: remove another line, or raise its budget.")
    changed = _remove_lines(record, replaced, applied.content, applied.dropped)
    # The present head lacks the line, also if nothing was removed for it.
    changed = _replace(changed, edition=record.edition + 1)
    return with_app_lines(with_brief_record(transcript, changed), applied.dropped, replaced)


def _remove_lines(
    record: BriefRecord, removed: Sequence[Line], content: BriefContent, dropped: Sequence[Line]
) -> BriefRecord:
    """Return the record with the content that an edit by the app produced.

    `removed` has the lines that the app removed, and `dropped` those that no longer fit the budget. If any line was
    removed, the edition changes, so that a head with the old brief is not sent again.
    """
    edition = record.edition + bool(removed)
    corrections = add_corrections(record.corrections, record.content, content, removed)
    return _replace(record, content=content, dropped=(*removed, *dropped), edition=edition, corrections=corrections)


def to_operations(brief: object) -> list[Operation]:
    """Return operations that set fields to given texts. `brief` maps each field to a text or a list of texts.

    An empty list clears its field. Raises `InputError` if `brief` is not such a mapping.
    """
    if not isinstance(brief, Mapping):
        raise InputError(f"`brief` must map fields to texts, such as {{'goal': '…'}}, not {brief!r}.")
    operations = []
    for field, texts in brief.items():
        values = texts if isinstance(texts, list | tuple) else (texts,)
        operations.append(Operation.set(field, *values) if values else Operation.clear(field))
    _check_operations(operations)
    return operations


def _check_operations(changes: Sequence[Operation]) -> None:
    """Raise `InputError` if a field or text is not a string, a text is too long, or there are too many texts."""
    for change in changes:
        if not isinstance(change.field, str):
            raise InputError(f"The name of a brief's field must be a string, not {type(change.field).__name__}.")
        for text in (*change.texts, change.answer):
            if not isinstance(text, str):
                raise InputError(f"A line of the brief must be a string, not {type(text).__name__}.")
            if len(text) > _MAX_CHARS:
                raise InputError(f"A line of the brief may have at most {_MAX_CHARS:,} characters, not {len(text):,}.")
    if (texts := sum(len(change.texts) for change in changes)) > MAX_TEXTS:
        raise InputError(f"One edit of the brief may have at most {MAX_TEXTS} texts, not {texts:,}.")


def render_record(record: BriefRecord, config: Brief, counter: Counter) -> str:
    """Return the brief in a record as it is sent to the model; empty if the brief has no lines."""
    return render_brief(apply(record.content, [], config, counter).content, config)


def list_removed_lines(records: Iterable[BriefRecord]) -> tuple[Line, ...]:
    """Return the lines that were dropped, cut or removed at some time and are not in the brief in full now.

    The line that left the brief last comes last. `records` has all brief records of the conversation, oldest first.
    """
    removed: dict[str, Line] = {}
    last = BriefRecord()
    for record in records:
        if record.dropped != last.dropped:
            for line in record.dropped:
                removed.pop(line.id, None)
                removed[line.id] = line
        last = record
    full_ids = {make_line_id(line.field, normalize(line.text)) for line in last.content.lines}
    in_brief = {line.id for line in last.content.lines if line.id in full_ids}
    return tuple(line for line in removed.values() if line.id not in in_brief)

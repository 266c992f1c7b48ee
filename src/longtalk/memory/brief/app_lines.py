"""The lines that the app wrote into a brief and that have left it, for search and recall.

A line of the model is found in the answer whose card states it. A line of the app is in no entry, so each change that
takes lines of the app out of a brief makes a record of them. A branch uses all of these records; a state has only the
newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from longtalk._util import json_bytes
from longtalk.memory.brief.apply import list_line_ids
from longtalk.memory.brief.lines import BriefContent, Line, make_line_id, normalize
from longtalk.transcript.transcript import Transcript

KIND = "app_lines"
"""The record kind of these records."""
ROLE = "brief"
"""The role of a line that is found by search or recall."""


class AppLines(msgspec.Struct, frozen=True, omit_defaults=True):
    """Lines of the app that left a brief in one change."""

    fell: tuple[Line, ...] = ()
    """The lines that no longer fit, in full."""
    removed: tuple[Line, ...] = ()
    """The lines that the app or the model removed or replaced. They are found by search, but never sent again."""


def with_app_lines(
    transcript: Transcript, fell: Iterable[Line], removed: Iterable[Line], *, merge: bool = False
) -> Transcript:
    """Return the transcript with a record of the lines of the app that a change took out of its brief.

    With `merge`, the record also has the lines that earlier changes of the same turn took out, because the store may
    not have the records of these changes yet.
    """
    change = AppLines(tuple(_select_app_lines(fell)), tuple(_select_app_lines(removed)))
    if not change.fell and not change.removed:
        return transcript
    last = next((each for each in reversed(transcript.records) if each.kind == KIND), None)
    if merge and last is not None and _get_turn(last.entry) == _get_turn(transcript.head or ""):
        earlier = transcript.records.read(last, AppLines) or AppLines()
        change = AppLines((*earlier.fell, *change.fell), (*earlier.removed, *change.removed))
    return transcript.add_record(KIND, json_bytes.encode(change), replace=True)


def _select_app_lines(lines: Iterable[Line]) -> Iterator[Line]:
    return (line for line in lines if not line.entry)


def _get_turn(entry: str) -> str:
    return entry.rpartition("-")[0]


def list_fallen(changes: Iterable[AppLines], content: BriefContent) -> list[Line]:
    """Return the lines that fell out of a brief with this content and may be sent again, oldest first.

    `changes` has the records of the branch, oldest first. Lines that were removed or revoked later are left out.
    """
    lines: dict[str, Line] = {}
    for change in changes:
        lines |= {line.id: line for line in change.fell}
        for line in change.removed:
            lines.pop(line.id, None)
    return [line for line in lines.values() if has_left(line, content)]


def has_left(line: Line, content: BriefContent) -> bool:
    """Return True unless this line is in the brief in full or was revoked."""
    ids = {make_line_id(each.field, normalize(each.text)) for each in content.lines if each.id == line.id}
    return line.id not in ids and not set(content.revoked).intersection(list_line_ids(line))

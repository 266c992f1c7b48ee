"""The history of a brief: what each change added, removed and revoked."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from longtalk.memory.brief.lines import Line
from longtalk.memory.brief.record import BriefRecord


class BriefChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a brief. A line whose text was edited is removed, and added with its new text."""

    at: int
    """When the brief was changed, in milliseconds since 1970."""
    added: tuple[Line, ...] = ()
    removed: tuple[Line, ...] = ()
    revoked: tuple[str, ...] = ()
    """The ids of the lines that the app revoked with this change."""


def list_changes(records: Iterable[tuple[int, BriefRecord]]) -> list[BriefChange]:
    """Return the changes between the brief records of a conversation, each given with its time, oldest first.

    Records that differ in other things only, such as the number of entries that they cover, are no change.
    """
    changes: list[BriefChange] = []
    last = BriefRecord().content
    for at, record in records:
        content = record.content
        before, after = {line.id for line in last.lines}, {line.id for line in content.lines}
        change = BriefChange(
            at=at,
            added=tuple(line for line in content.lines if line.id not in before),
            removed=tuple(line for line in last.lines if line.id not in after),
            revoked=tuple(each for each in content.revoked if each not in last.revoked),
        )
        if change.added or change.removed or change.revoked:
            changes.append(change)
        last = content
    return changes

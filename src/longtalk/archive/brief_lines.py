"""Search the lines that the app wrote into a brief and that are no longer in it.

A search finds a line of the model in the answer whose card states it. A line of the app is in no entry, only in brief
records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from longtalk.memory.brief.apply import list_line_ids
from longtalk.memory.brief.edits import list_removed_lines
from longtalk.memory.brief.lines import Line
from longtalk.memory.brief.record import BriefRecord
from longtalk.stores._words import normalize_words
from longtalk.stores.base import PlacedRecord, SearchHit
from longtalk.stores.in_memory import rank_hits
from longtalk.transcript.standing import read_record

ROLE = "brief"
"""The role of a search hit that is a line of a brief."""


def search_app_lines(
    conversation: str, records: Sequence[tuple[str, PlacedRecord]], terms: Collection[str], limit: int
) -> list[SearchHit]:
    """Return at most `limit` lines of the app that are no longer in a brief and contain any of the terms, best first.

    `records` has all brief records of a conversation with their branches; the records of each branch are in order,
    oldest first.
    """
    hits: dict[str, SearchHit] = {}
    for branch in dict.fromkeys(name for name, _ in records):
        placed = [each for name, each in records if name == branch]
        for line, found in _list_app_lines(placed):
            hit = SearchHit(
                conversation=conversation,
                branch=branch,
                position=max(0, found.position),
                entry=found.record.entry,
                role=ROLE,
                at=line.at,
                text=line.text,
            )
            hits.setdefault(line.id, hit)
    return rank_hits([(hit, normalize_words(hit.text)) for hit in hits.values()], terms, limit)


def _list_app_lines(placed: Sequence[PlacedRecord]) -> Iterator[tuple[Line, PlacedRecord]]:
    """Yield the lines of the app that are no longer in the brief of a branch, each with the record that dropped it.

    Lines that the app has revoked are not yielded.
    """
    read = [(each, record) for each in placed if (record := read_record(each.record, BriefRecord)) is not None]
    revoked = frozenset(read[-1][1].content.revoked) if read else frozenset[str]()
    for line in list_removed_lines(record for _, record in read):
        if not line.entry and not revoked.intersection(list_line_ids(line)):
            yield line, next(each for each, record in reversed(read) if line in record.dropped)

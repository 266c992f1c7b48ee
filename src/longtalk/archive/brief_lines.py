"""Search the lines that the app wrote into briefs and that are no longer in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from longtalk.memory.brief.app_lines import KIND, ROLE, AppLines, has_left
from longtalk.memory.brief.lines import Line
from longtalk.memory.brief.record import read_brief_record_at
from longtalk.stores._words import normalize_words
from longtalk.stores.base import PlacedRecord, SearchHit, Store
from longtalk.stores.in_memory import rank_hits
from longtalk.transcript.standing import read_record


def find_app_lines(
    store: Store, owner: str, terms: Collection[str], limit: int, conversation: str | None, branch: str | None
) -> list[SearchHit]:
    """Return at most `limit` lines of the app that are no longer in a brief and contain any of the terms, best first.

    With `conversation`, search only the briefs of that conversation; with `branch` too, only the brief of that branch.
    A line is found once in each conversation.
    """
    hits: dict[tuple[str, str], SearchHit] = {}
    for name in store.conversations_with(owner, KIND) if conversation is None else [conversation]:
        for each in store.branches(owner, name):
            if branch not in (None, each.branch):
                continue
            for line, placed in _list_lines(store, owner, name, each.branch):
                hit = SearchHit(
                    conversation=name,
                    branch=each.branch,
                    position=max(0, placed.position),
                    entry=placed.record.entry,
                    role=ROLE,
                    at=line.at,
                    text=line.text,
                )
                hits.setdefault((name, line.id), hit)
    return rank_hits([(hit, normalize_words(hit.text)) for hit in hits.values()], terms, limit)


def _list_lines(store: Store, owner: str, conversation: str, branch: str) -> Iterator[tuple[Line, PlacedRecord]]:
    """Yield each line of the app that no longer fits into the brief of a branch, with the record that has it.

    Lines that the app has revoked are skipped.
    """
    head = store.head(owner, conversation, branch)
    if head is None or all(each.record.kind != KIND for each in head.records):
        return
    content = read_brief_record_at((each.record for each in head.records), head.size).content
    lines: dict[str, tuple[Line, PlacedRecord]] = {}
    for placed in store.records(owner, conversation, branch, KIND):
        change = read_record(placed.record, AppLines) or AppLines()
        lines |= {line.id: (line, placed) for line in (*change.removed, *change.fell)}
    yield from (found for found in lines.values() if has_left(found[0], content))

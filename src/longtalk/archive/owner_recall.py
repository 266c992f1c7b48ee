"""Recall over the conversations of an owner: choose those to search by the store's full-text search."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import msgspec

from longtalk._util.checks import PROFILE_ID
from longtalk.memory.brief import app_lines
from longtalk.memory.brief.corrections import Correction
from longtalk.memory.brief.lines import clean_line, shorten
from longtalk.memory.brief.record import read_brief_record_at
from longtalk.memory.profile.lines import is_private
from longtalk.memory.recall.config import Recalled
from longtalk.memory.recall.index import RecallIndex
from longtalk.memory.recall.owner import FIRST_OTHER, Part, index_conversations, list_words
from longtalk.memory.recall.search import add_fallen_lines
from longtalk.stores.base import Store
from longtalk.transcript.transcript import Transcript

MAX_CONVERSATIONS = 32
"""The maximum number of other conversations that are searched for one message."""
_MAX_HITS = 400
"""The number of hits of the full-text search by which conversations are chosen."""
_TITLE_CHARS = 60


def recall_from_owner(
    store: Store,
    names: tuple[str, str, str],
    before: Transcript,
    message: str,
    render: Callable[[RecallIndex], Recalled],
    *,
    now: int,
    meaning: bool = False,
) -> Recalled:
    """Return what `render` makes of an index of a branch and of its owner's other conversations.

    `names` are owner, conversation and branch, and `before` is the transcript before the message. Private conversations
    are not searched. With `meaning`, what is found by words is ranked by meaning too.
    """
    owner, conversation, _ = names
    others = _choose_conversations(store, owner, conversation, list_words(message))

    @cache
    def describe(name: str) -> str:
        info = store.info(owner, name)
        title = info.meta.get("title") if info is not None else None
        title = clean_line(title) if isinstance(title, str) else ""
        return f'conversation "{shorten(title or clean_line(name), _TITLE_CHARS)}"'

    own_part = Part(*names, before.size)
    parts = [part for part, _ in others]
    corrections = {part.conversation: known for part, known in others}
    index = index_conversations(
        store, parts, own_part, message, now=now, describe=describe, corrections=corrections, meaning=meaning
    )
    if app_lines.KIND in [record.kind for record in before.records]:
        add_fallen_lines(index, before, [each.record for each in store.records(*names, app_lines.KIND)])
    found = render(index)
    own = [pair for pair in zip(found.positions, found.sizes, strict=True) if pair[0] >= FIRST_OTHER]
    return msgspec.structs.replace(
        found,
        positions=tuple(position for position, _ in own),
        sizes=tuple(size for _, size in own),
        is_foreign=len(own) < len(found.positions),
    )


def _choose_conversations(
    store: Store, owner: str, own: str, words: list[str]
) -> list[tuple[Part, tuple[Correction, ...]]]:
    """Return the other conversations with the best hits for these words, oldest first, with their corrections."""
    branches: dict[str, str] = {}
    for hit in store.candidates(owner, words, _MAX_HITS) if words else ():
        if hit.conversation not in (own, PROFILE_ID):
            branches.setdefault(hit.conversation, hit.branch)
    found: list[tuple[int, Part, tuple[Correction, ...]]] = []
    for conversation, branch in branches.items():
        if len(found) >= MAX_CONVERSATIONS:
            break
        head = store.head(owner, conversation, branch)
        if head is not None and head.size and not is_private(each.record for each in head.records):
            brief = read_brief_record_at((each.record for each in head.records), head.size)
            found.append((head.updated, Part(owner, conversation, branch, head.size), brief.corrections))
    return [(part, known) for _, part, known in sorted(found, key=lambda each: (each[0], each[1].conversation))]

"""The tree of a stored conversation: where each of its branches forks from another one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import msgspec

from longtalk.errors import NotFound
from longtalk.stores.base import MAIN, BranchHead, SearchHit, Store
from longtalk.stores.leases import is_free
from longtalk.transcript.transcript import TurnStatus


class BranchPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A branch, and its place in the tree."""

    head: BranchHead
    source: str | None
    """The branch that it shares its first entries with; None for the first branch."""
    shared: int
    """The number of entries that it shares with `source`."""
    status: TurnStatus | None
    """The status of its last turn; "interrupted" for one that says it is running although no process runs it."""


def find_last_branch(heads: Iterable[BranchHead]) -> str:
    """Return the branch on which a conversation goes on: the one that changed last. Raises `NotFound` for none."""
    found = list(heads)
    if not found:
        raise NotFound("The conversation has no branches, because it was deleted. List the conversations again.")
    return max(found, key=lambda head: (head.updated, head.revision, head.branch == MAIN)).branch


def read_tree(store: Store, owner: str, conversation: str) -> list[BranchPlace]:
    """Return the branches of a conversation, main first and each after its source; empty if there is none."""
    heads = store.branches(owner, conversation)
    heads.sort(key=lambda head: (head.branch != MAIN, -head.size, head.branch))
    known: dict[str, str] = {}
    found: list[BranchPlace] = []

    def find_source(branch: str, position: int) -> str | None:
        """Return the earlier branch that has the entry at this position."""
        entries = store.read(owner, conversation, branch, position, position + 1).entries()
        return known.get(entries[0].id) if entries else None

    for head in heads:
        name = head.branch
        shared = bisect_left(range(head.size), True, key=lambda i, name=name: find_source(name, i) is None)  # type: ignore[misc]
        source = find_source(name, shared - 1) if shared else None
        status = head.turn.status if head.turn else None
        if status == "running" and is_free(head, owner, conversation):
            status = "interrupted"
        first = found[0].head.branch if found else None
        found.append(BranchPlace(head=head, source=source or first, shared=shared, status=status))
        if len(heads) > 1:
            own = store.read(owner, conversation, name, shared, head.size).entries()
            known |= {entry.id: name for entry in own}
    return found


def select_on_branch(
    store: Store, owner: str, conversation: str, branch: str, hits: Sequence[SearchHit]
) -> list[SearchHit]:
    """Return the hits whose entries are on this branch, which other branches may share."""
    head = store.head(owner, conversation, branch)
    places = sorted({hit.position for hit in hits if head is not None and hit.position < head.size})
    parts = store.pick(owner, conversation, branch, [(place, place + 1) for place in places]) if places else []
    own = {entry.id for part in parts for entry in part}
    return [msgspec.structs.replace(hit, branch=branch) for hit in hits if hit.entry in own]

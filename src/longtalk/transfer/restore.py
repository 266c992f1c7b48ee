"""Write a conversation into a store turn by turn, or add missing data to a stored conversation.

While a new conversation is being written, a mark in its metadata says that it is incomplete. If the import fails, a
later import removes the marked conversation and starts again. When entries are added to a stored conversation, it is
consistent after each commit, so a later import continues where a failed one stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from longtalk.stores.base import Commit, Lease, PlacedRecord, Store
from longtalk.stores.leases import identify_this_process
from longtalk.transcript.transcript import new_id, now
from longtalk.transfer.conversation_export import BranchPart, split_branches
from longtalk.transfer.record_order import order_missing_records
from longtalk.transfer.snapshot import (
    Snapshot,
    drop_closing_results,
    list_changed_turns,
    read_snapshot,
    starts_with_entries,
)

IMPORTING = "longtalk importing"
"""The metadata key that marks a conversation whose import has not been completed."""
_LEASE_MS = 10_000
"""The duration of the lease that locks a conversation while it is being removed, in milliseconds."""


def make_mark() -> dict[str, Any]:
    """Return metadata that marks a conversation as incomplete, with a unique value that identifies the import.

    An import that fails removes only conversations with its own mark.
    """
    return {IMPORTING: new_id()}


def is_incomplete(store: Store, owner: str, name: str, mark: Mapping[str, Any] | None = None) -> bool:
    """Return True if a conversation is marked as incompletely imported, and no turn has run on it.

    With `mark`, return True only if the conversation has that mark, which means that the same import created it.
    """
    there = store.info(owner, name)
    if there is None or (IMPORTING not in there.meta if mark is None else there.meta != mark):
        return False
    # A turn acquires a lease, which sets the token of the branch to a number other than 0.
    return all(head.token == 0 for head in store.branches(owner, name))


def read_complete(store: Store, owner: str, name: str, *, dry_run: bool = False) -> Snapshot | None:
    """Return a snapshot of a conversation, or None if it does not exist.

    If an earlier import left the conversation incomplete, delete it and return None, unless a turn has run on it. With
    `dry_run`, don't delete it.
    """
    there = read_snapshot(store, owner, name)
    if there is None or IMPORTING not in there.export.meta or there.touched:
        return there
    if not dry_run:
        store.delete(owner, name)
    return None


def remove(store: Store, owner: str, there: Snapshot) -> None:
    """Delete a conversation; raise `HeadMoved` if it has changed since the snapshot `there` was read."""
    mark = make_mark()
    for head in there.heads:
        # Token 0 means that no turn has run: if this process dies, a later import can delete the conversation.
        lease = Lease(identify_this_process(), now() + _LEASE_MS, 0)
        commit = Commit(branch=head.branch, expect=head.revision, lease=lease, at=head.updated, meta=mark)
        store.write(owner, there.id, commit)
    store.delete(owner, there.id)


def write_new(store: Store, owner: str, new: Snapshot, mark: Mapping[str, Any], *, finish: bool = True) -> None:
    """Write a new conversation that is marked as incomplete with `mark`; if `finish`, remove the mark at the end."""
    # If branches share entries, all branches must exist before records are written in their original order.
    apart = new.stored and len(new.paths) > 1
    commits = [commit for part in new.export.branches for commit in _build_branch_commits(new, part, records=not apart)]
    added = {part.name: {entry.turn for entry in part.entries} for part in new.export.branches}
    commits += _build_key_commits(new, added)
    commits += _build_record_commits(new, new.export.branches, {}) if apart else []
    if not commits:
        return
    first = commits[0]
    alone = [commit.branch for commit in commits].count(first.branch) == 1
    if alone and first.at != new.export.created:
        # The creation time differs from the time of the last change, so it needs a commit of its own.
        commits.insert(0, Commit(branch=first.branch, expect=0, at=0))
    commits[0] = msgspec.structs.replace(commits[0], at=new.export.created, meta=mark)
    if finish:
        commits[-1] = msgspec.structs.replace(commits[-1], meta=remove_mark(new.export.meta))
    _write_commits(store, owner, new.id, commits, {})


def write_more(store: Store, owner: str, new: Snapshot, there: Snapshot) -> None:
    """Add everything that only `new` has to the stored conversation `there`.

    This covers entries, branches, newer versions of turns, idempotency keys, records, and metadata of entries.
    """
    commits: list[Commit] = []
    added: dict[str, set[str]] = {}
    # A new branch is forked from a stored one if they share entries.
    parts = split_branches([*(new.paths[name] for name in there.paths), *_list_new_branches(new, there)])
    for part in parts:
        stored, path = there.paths.get(part.name), new.paths[part.name]
        if stored is None:
            commits += _build_branch_commits(new, part, records=False)
            added[part.name] = {entry.turn for entry in part.entries}
        else:
            fresh = _build_update_commits(new, path, stored)
            if not fresh and new.updated[part.name] != there.updated[part.name]:
                fresh = [Commit(branch=part.name, expect=0, at=new.updated[part.name])]
            commits += fresh
            added[part.name] = {entry.turn for entry in path.entries[_count_kept_entries(path, stored) :]}
    known = {keyed.request.key for keyed in there.requests}
    commits += [each for each in _build_key_commits(new, added) if each.request and each.request.key not in known]
    revisions = dict(there.revisions)
    _write_commits(store, owner, new.id, commits, revisions)
    # A new branch inherits the records of the branch that it is forked from.
    have = {name: store.records(owner, new.id, name) for name in new.paths}
    _write_commits(store, owner, new.id, _build_record_commits(new, parts, have), revisions)
    for name, stored in there.paths.items():
        metas, entries = new.paths[name].metas, new.paths[name].entries
        for position in range(_count_kept_entries(new.paths[name], stored)):
            if position in metas and metas[position] != stored.metas.get(position):
                store.describe(owner, new.id, metas[position], entry=entries[position].id)


def remove_mark(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata without an import mark, since imported data must not contain one."""
    return {key: value for key, value in meta.items() if key != IMPORTING}


def _write_commits(store: Store, owner: str, name: str, commits: list[Commit], revisions: dict[str, int]) -> None:
    for commit in commits:
        # Only the first commit of a branch names its source.
        seen = revisions.get(commit.branch, 0)
        source = None if seen else commit.source
        ready = msgspec.structs.replace(commit, expect=seen, source=source)
        revisions[commit.branch] = store.write(owner, name, ready).revision


def _build_branch_commits(new: Snapshot, part: BranchPart, *, records: bool) -> list[Commit]:
    """Return the commits that create a branch; with `records`, the last of them also writes its records."""
    commits = list(_build_turn_commits(new, part, part.start))
    if not commits:
        commits = [Commit(branch=part.name, expect=0, at=new.updated[part.name])]
    commits[0] = msgspec.structs.replace(commits[0], source=part.source)
    if records:
        commits[-1] = msgspec.structs.replace(commits[-1], records=part.records)
    return commits


def _build_update_commits(new: Snapshot, path: BranchPart, stored: BranchPart) -> list[Commit]:
    """Return the commits that turn a stored branch into `path`: newer versions of turns, then new entries."""
    kept = _count_kept_entries(path, stored)
    fresh = {entry.turn for entry in path.entries[kept:]}
    commits = [
        Commit(
            branch=path.name,
            expect=0,
            turn=turn,
            manifest=new.manifests.get(turn.id, b""),
            at=new.updated[path.name],
        )
        for turn in list_changed_turns(path.turns, stored.turns)
        if turn.id not in fresh
    ]
    added = list(_build_turn_commits(new, path, kept))
    if added and kept < len(stored.entries):
        added[0] = msgspec.structs.replace(added[0], cut=kept)
    return [*commits, *added]


def _count_kept_entries(path: BranchPart, stored: BranchPart) -> int:
    """Return the number of entries of a stored branch that are kept when the branch is changed to `path`.

    Closing results at the end of the stored branch are dropped if `path` has the real tool results instead.
    """
    keeps_all = starts_with_entries(path.entries, stored.entries)
    return len(stored.entries if keeps_all else drop_closing_results(stored.entries))


def _build_turn_commits(new: Snapshot, path: BranchPart, start: int) -> Iterator[Commit]:
    """Yield a commit for each turn of a branch, with the turn's entries from position `start` on."""
    turns = {turn.id: turn for turn in path.turns}
    keys = {keyed.turn.id: keyed.request for keyed in new.requests if keyed.branch == path.name}
    position = start
    for name, part in groupby(path.entries[start - path.start :], key=lambda entry: entry.turn):
        entries = tuple(part)
        turn = turns.get(name)
        yield Commit(
            branch=path.name,
            expect=0,
            entries=entries,
            turn=turn,
            manifest=new.manifests.get(name, b"") if turn else b"",
            request=keys.get(name) if turn else None,
            at=new.updated[path.name],
            entry_meta={i: path.metas[position + i] for i in range(len(entries)) if position + i in path.metas},
        )
        position += len(entries)


def _build_key_commits(new: Snapshot, added: Mapping[str, set[str]]) -> list[Commit]:
    """Return commits for the idempotency keys of turns that no other commit writes.

    `added` has the ids of the turns whose entries are written, by branch; their commits include the keys.
    """
    return [
        Commit(branch=keyed.branch, expect=0, turn=keyed.turn, request=keyed.request, at=new.updated[keyed.branch])
        for keyed in new.requests
        if keyed.turn.id not in added.get(keyed.branch, ())
    ]


def _list_new_branches(new: Snapshot, there: Snapshot) -> list[BranchPart]:
    """Return the branches of `new` that the stored conversation does not have."""
    return [path for name, path in new.paths.items() if name not in there.paths]


def _build_record_commits(
    new: Snapshot, parts: Sequence[BranchPart], have: Mapping[str, Sequence[PlacedRecord]]
) -> list[Commit]:
    """Return commits that write the missing records in their original order; see `order_missing_records`."""
    commits: list[Commit] = []
    for branch, placed in order_missing_records(new, parts, have):
        if not commits or commits[-1].branch != branch:
            commits.append(Commit(branch=branch, expect=0, at=new.updated[branch]))
        commits[-1] = msgspec.structs.replace(commits[-1], records=(*commits[-1].records, placed))
    return commits

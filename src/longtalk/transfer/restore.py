"""Write a conversation into a store turn by turn, or add what the stored conversation lacks.

A new conversation has a mark in its metadata until it is complete. If the import fails, a later import removes the
marked conversation and starts again. A conversation to which entries are added is consistent after each commit, so a
later import continues where the failed one stopped.
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
from longtalk.transfer.record_order import merged
from longtalk.transfer.snapshot import Snapshot, begins_with, changed, read_snapshot, without_closings

IMPORTING = "longtalk importing"
"""The metadata key that marks a conversation whose import is not complete."""
_HELD = 10_000
"""How long a conversation is locked by a lease while it is being removed, in milliseconds."""


def new_mark() -> dict[str, Any]:
    """Return metadata that marks a conversation as incomplete, with an id that is unique to the import.

    If the import fails, it removes only the conversations with its own mark.
    """
    return {IMPORTING: new_id()}


def is_left(store: Store, owner: str, name: str, mark: Mapping[str, Any] | None = None) -> bool:
    """Return True if a conversation is the remains of an incomplete import, and no turn has run on it.

    With `mark`, it must be the remains of the import with that mark.
    """
    there = store.info(owner, name)
    if there is None or (IMPORTING not in there.meta if mark is None else there.meta != mark):
        return False
    # A turn takes a lease, which sets the token of the branch.
    return all(head.token == 0 for head in store.branches(owner, name))


def read_complete(store: Store, owner: str, name: str) -> Snapshot | None:
    """Return a snapshot of a conversation, or None if it does not exist.

    The remains of an incomplete import are deleted and count as not existing, unless a turn has run on them.
    """
    there = read_snapshot(store, owner, name)
    if there is None or IMPORTING not in there.export.meta or there.touched:
        return there
    store.delete(owner, name)
    return None


def remove(store: Store, owner: str, there: Snapshot) -> None:
    """Delete the conversation of a snapshot; raise `HeadMoved` if the conversation has changed since it was read."""
    mark = new_mark()
    for head in there.heads:
        # With token 0 it looks as if no turn had run, so that a later attempt can start again.
        held = Lease(identify_this_process(), now() + _HELD, 0)
        commit = Commit(branch=head.branch, expect=head.revision, lease=held, at=head.updated, meta=mark)
        store.write(owner, there.id, commit)
    store.delete(owner, there.id)


def write_new(store: Store, owner: str, new: Snapshot, mark: Mapping[str, Any], *, finish: bool = True) -> None:
    """Write a new conversation with an import mark; with `finish`, remove the mark at the end."""
    # Branches with shared entries must all exist before the order of their records can be determined.
    apart = new.stored and len(new.paths) > 1
    commits = [commit for part in new.export.branches for commit in _begun(new, part, records=not apart)]
    commits += _keys(new, {part.name: {entry.turn for entry in part.entries} for part in new.export.branches})
    commits += _recorded(new, new.export.branches, {}) if apart else []
    if not commits:
        return
    first = commits[0]
    alone = [commit.branch for commit in commits].count(first.branch) == 1
    if alone and first.at != new.export.created:
        # Its creation time differs from its last change, so it needs a first commit of its own.
        commits.insert(0, Commit(branch=first.branch, expect=0, at=0))
    commits[0] = msgspec.structs.replace(commits[0], at=new.export.created, meta=mark)
    if finish:
        commits[-1] = msgspec.structs.replace(commits[-1], meta=clean(new.export.meta))
    _write(store, owner, new.id, commits, {})


def write_more(store: Store, owner: str, new: Snapshot, there: Snapshot) -> None:
    """Write what a stored conversation lacks: entries, branches, newer versions of turns, records and metadata."""
    commits: list[Commit] = []
    added: dict[str, set[str]] = {}
    # A new branch begins on a stored one if they share entries.
    parts = split_branches([*(new.paths[name] for name in there.paths), *_beside(new, there)])
    for part in parts:
        held, path = there.paths.get(part.name), new.paths[part.name]
        if held is None:
            commits += _begun(new, part, records=False)
            added[part.name] = {entry.turn for entry in part.entries}
        else:
            fresh = _grown(new, path, held)
            if not fresh and new.updated[part.name] != there.updated[part.name]:
                fresh = [Commit(branch=part.name, expect=0, at=new.updated[part.name])]
            commits += fresh
            added[part.name] = {entry.turn for entry in path.entries[_kept(path, held) :]}
    known = {asked.request.key for asked in there.requests}
    commits += [each for each in _keys(new, added) if each.request and each.request.key not in known]
    revisions = dict(there.revisions)
    _write(store, owner, new.id, commits, revisions)
    # A new branch inherits the records of the branch that it begins on.
    have = {name: store.records(owner, new.id, name) for name in new.paths}
    _write(store, owner, new.id, _recorded(new, parts, have), revisions)
    for name, held in there.paths.items():
        metas, entries = new.paths[name].metas, new.paths[name].entries
        for place in range(_kept(new.paths[name], held)):
            if place in metas and metas[place] != held.metas.get(place):
                store.describe(owner, new.id, metas[place], entry=entries[place].id)


def clean(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata without the import mark, which only this module may set."""
    return {key: value for key, value in meta.items() if key != IMPORTING}


def _write(store: Store, owner: str, name: str, commits: list[Commit], revisions: dict[str, int]) -> None:
    for commit in commits:
        # Only the first commit of a branch names its source.
        seen = revisions.get(commit.branch, 0)
        source = None if seen else commit.source
        made = msgspec.structs.replace(commit, expect=seen, source=source)
        revisions[commit.branch] = store.write(owner, name, made).revision


def _begun(new: Snapshot, part: BranchPart, *, records: bool) -> list[Commit]:
    """Return the commits that create a branch; with `records`, its records are included."""
    commits = list(_turns(new, part, part.start))
    if not commits:
        commits = [Commit(branch=part.name, expect=0, at=new.updated[part.name])]
    commits[0] = msgspec.structs.replace(commits[0], source=part.source)
    if records:
        commits[-1] = msgspec.structs.replace(commits[-1], records=part.records)
    return commits


def _grown(new: Snapshot, path: BranchPart, held: BranchPart) -> list[Commit]:
    """Return the commits that add new entries and newer versions of turns to a stored branch."""
    kept = _kept(path, held)
    fresh = {entry.turn for entry in path.entries[kept:]}
    commits = [
        Commit(
            branch=path.name,
            expect=0,
            turn=turn,
            manifest=new.manifests.get(turn.id, b""),
            at=new.updated[path.name],
        )
        for turn in changed(path.turns, held.turns)
        if turn.id not in fresh
    ]
    added = list(_turns(new, path, kept))
    if added and kept < len(held.entries):
        added[0] = msgspec.structs.replace(added[0], cut=kept)
    return [*commits, *added]


def _kept(path: BranchPart, held: BranchPart) -> int:
    """Return how many entries of a stored branch are kept.

    Closing results at its end, which stand for missing results of tool calls, are dropped if the real ones have
    arrived.
    """
    whole = begins_with(path.entries, held.entries)
    return len(held.entries if whole else without_closings(held.entries))


def _turns(new: Snapshot, path: BranchPart, start: int) -> Iterator[Commit]:
    """Yield a commit for each turn of a branch, starting with the entry at position `start`."""
    turns = {turn.id: turn for turn in path.turns}
    keys = {asked.turn.id: asked.request for asked in new.requests if asked.branch == path.name}
    place = start
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
            entry_meta={i: path.metas[place + i] for i in range(len(entries)) if place + i in path.metas},
        )
        place += len(entries)


def _keys(new: Snapshot, added: Mapping[str, set[str]]) -> list[Commit]:
    """Return commits for requests with an idempotency key whose turns are not among those added to their branch."""
    return [
        Commit(branch=asked.branch, expect=0, turn=asked.turn, request=asked.request, at=new.updated[asked.branch])
        for asked in new.requests
        if asked.turn.id not in added.get(asked.branch, ())
    ]


def _beside(new: Snapshot, there: Snapshot) -> list[BranchPart]:
    """Return the branches of `new` that the stored conversation does not have."""
    return [path for name, path in new.paths.items() if name not in there.paths]


def _recorded(new: Snapshot, parts: Sequence[BranchPart], have: Mapping[str, Sequence[PlacedRecord]]) -> list[Commit]:
    """Return commits that write the missing records in their original order."""
    commits: list[Commit] = []
    for branch, placed in merged(new, parts, have):
        if not commits or commits[-1].branch != branch:
            commits.append(Commit(branch=branch, expect=0, at=new.updated[branch]))
        commits[-1] = msgspec.structs.replace(commits[-1], records=(*commits[-1].records, placed))
    return commits

"""Writing a whole conversation into a store, turn by turn, or what it has more than the one that is there.

Until all of a new one is there it carries a mark among the app's own data, and a later try begins anew. One that grows
is whole after each commit, so a later try goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from longtalk.portable import Limb, limbs
from longtalk.record_order import merged
from longtalk.stores.base import Commit, Lease, Placed, Store
from longtalk.stores.leases import me
from longtalk.transcript import new_id, now
from longtalk.whole import Whole, begins_with, changed, read_whole, without_closings

IMPORTING = "longtalk importing"
"""Among the app's own data on a conversation while it is taken in."""
_HELD = 10_000
"""Milliseconds for which nobody runs a turn on what is removed."""


def new_mark() -> dict[str, Any]:
    """One that nobody else has: what is removed again is what was made here."""
    return {IMPORTING: new_id()}


def is_left(store: Store, owner: str, name: str, mark: Mapping[str, Any] | None = None) -> bool:
    """Whether this is what an earlier try has left, or the one of this mark, and nobody has gone on with it."""
    there = store.summary(owner, name)
    if there is None or (IMPORTING not in there.meta if mark is None else there.meta != mark):
        return False
    # Whoever runs a turn takes a lease.
    return all(head.token == 0 for head in store.branches(owner, name))


def whole_or_none(store: Store, owner: str, name: str) -> Whole | None:
    """All of a conversation; None when there is none, or only what an earlier try has left, which is removed."""
    there = read_whole(store, owner, name)
    if there is None or IMPORTING not in there.talk.meta or there.touched:
        return there
    store.delete(owner, name)
    return None


def remove(store: Store, owner: str, there: Whole) -> None:
    """Delete one that was read. Raises `Moved` if somebody has changed it since; nobody runs a turn on it meanwhile."""
    mark = new_mark()
    for head in there.heads:
        # A token of none: it is as if no turn was ever run, and a later try begins anew.
        held = Lease(me(), now() + _HELD, 0)
        commit = Commit(branch=head.branch, expect=head.revision, lease=held, at=head.updated, meta=mark)
        store.write(owner, there.id, commit)
    store.delete(owner, there.id)


def write_new(store: Store, owner: str, new: Whole, mark: Mapping[str, Any], *, finish: bool = True) -> None:
    """Write one that is not there. Unless this is to `finish` it, it keeps the mark."""
    # Where branches share entries, whose records come first is known when all branches are there.
    apart = new.stored and len(new.paths) > 1
    commits = [commit for limb in new.talk.limbs for commit in _begun(new, limb, records=not apart)]
    commits += _keys(new, {limb.name: {entry.turn for entry in limb.entries} for limb in new.talk.limbs})
    commits += _recorded(new, new.talk.limbs, {}) if apart else []
    if not commits:
        return
    first = commits[0]
    alone = [commit.branch for commit in commits].count(first.branch) == 1
    if alone and first.at != new.talk.created:
        # It began before it was changed last.
        commits.insert(0, Commit(branch=first.branch, expect=0, at=0))
    commits[0] = msgspec.structs.replace(commits[0], at=new.talk.created, meta=mark)
    if finish:
        commits[-1] = msgspec.structs.replace(commits[-1], meta=clean(new.talk.meta))
    _write(store, owner, new.id, commits, {})


def write_more(store: Store, owner: str, new: Whole, there: Whole) -> None:
    """Write what a conversation has more than what is there: entries, branches, later versions of turns, records."""
    commits: list[Commit] = []
    added: dict[str, set[str]] = {}
    # A new branch begins on one that is there, where that has some of its entries.
    parts = limbs([*(new.paths[name] for name in there.paths), *_beside(new, there)])
    for limb in parts:
        held, path = there.paths.get(limb.name), new.paths[limb.name]
        if held is None:
            commits += _begun(new, limb, records=False)
            added[limb.name] = {entry.turn for entry in limb.entries}
        else:
            fresh = _grown(new, path, held)
            if not fresh and new.updated[limb.name] != there.updated[limb.name]:
                fresh = [Commit(branch=limb.name, expect=0, at=new.updated[limb.name])]
            commits += fresh
            added[limb.name] = {entry.turn for entry in path.entries[_kept(path, held) :]}
    known = {asked.request.key for asked in there.requests}
    commits += [each for each in _keys(new, added) if each.request and each.request.key not in known]
    revisions = dict(there.revisions)
    _write(store, owner, new.id, commits, revisions)
    # A new branch has the records of the one that it begins on.
    have = {name: store.records(owner, new.id, name) for name in new.paths}
    _write(store, owner, new.id, _recorded(new, parts, have), revisions)
    for name, held in there.paths.items():
        metas, entries = new.paths[name].metas, new.paths[name].entries
        for place in range(_kept(new.paths[name], held)):
            if place in metas and metas[place] != held.metas.get(place):
                store.describe(owner, new.id, metas[place], entry=entries[place].id)


def clean(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The mark is ours alone to make."""
    return {key: value for key, value in meta.items() if key != IMPORTING}


def _write(store: Store, owner: str, name: str, commits: list[Commit], revisions: dict[str, int]) -> None:
    for commit in commits:
        # Of one that was begun apart, the source is said once.
        seen = revisions.get(commit.branch, 0)
        source = None if seen else commit.source
        made = msgspec.structs.replace(commit, expect=seen, source=source)
        revisions[commit.branch] = store.write(owner, name, made).revision


def _begun(new: Whole, limb: Limb, *, records: bool) -> list[Commit]:
    """The commits of a branch that is not there."""
    commits = list(_turns(new, limb, limb.start))
    if not commits:
        commits = [Commit(branch=limb.name, expect=0, at=new.updated[limb.name])]
    commits[0] = msgspec.structs.replace(commits[0], source=limb.source)
    if records:
        commits[-1] = msgspec.structs.replace(commits[-1], records=limb.records)
    return commits


def _grown(new: Whole, path: Limb, held: Limb) -> list[Commit]:
    """The commits of a branch that is there, and has grown."""
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


def _kept(path: Limb, held: Limb) -> int:
    """How many of the entries that are there stay: a call that was closed may have its result now."""
    whole = begins_with(path.entries, held.entries)
    return len(held.entries if whole else without_closings(held.entries))


def _turns(new: Whole, path: Limb, start: int) -> Iterator[Commit]:
    """A commit for each turn, from a place of the path on."""
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


def _keys(new: Whole, added: Mapping[str, set[str]]) -> list[Commit]:
    """The keys of turns whose entries are not written together with the branch that they were asked for on."""
    return [
        Commit(branch=asked.branch, expect=0, turn=asked.turn, request=asked.request, at=new.updated[asked.branch])
        for asked in new.requests
        if asked.turn.id not in added.get(asked.branch, ())
    ]


def _beside(new: Whole, there: Whole) -> list[Limb]:
    """The branches that are not there yet."""
    return [path for name, path in new.paths.items() if name not in there.paths]


def _recorded(new: Whole, parts: Sequence[Limb], have: Mapping[str, Sequence[Placed]]) -> list[Commit]:
    """Commits that write the records which are not there yet, in the order in which they were made."""
    commits: list[Commit] = []
    for branch, placed in merged(new, parts, have):
        if not commits or commits[-1].branch != branch:
            commits.append(Commit(branch=branch, expect=0, at=new.updated[branch]))
        commits[-1] = msgspec.structs.replace(commits[-1], records=(*commits[-1].records, placed))
    return commits

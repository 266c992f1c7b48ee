"""Taking conversations into a store, all or none of them. One that was cut off there is no conversation yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from longtalk.errors import InputError
from longtalk.portable import Limb, Talk
from longtalk.said import check_name, waiting_behind
from longtalk.stores.base import Commit, Moved, Store
from longtalk.transcript import new_id, now
from longtalk.wires import WIRES

_IMPORTING = "longtalk importing"
"""Among the app's own data on a conversation while it is taken in."""


def take_in(store: Store, owner: str, talks: Sequence[Talk]) -> list[str]:
    """Take in conversations, and return their ids. Raises `InputError` if one is there already."""
    names = [talk.id for talk in talks]
    for talk in talks:
        _check(talk)
    for name in names:
        check_name(name, "id")
        if names.count(name) > 1:
            raise InputError(f"The file holds two conversations {name!r}.")
        if store.summary(owner, name) is not None and not _is_left(store, owner, name):
            raise InputError(f"There is a conversation {name!r} already. Name another id, or delete it first.")
    # Nobody else has the same: what is removed again is what was made here.
    mark = {_IMPORTING: new_id()}
    done: list[Talk] = []
    try:
        for talk in talks:
            _write(store, owner, talk, mark)
            done.append(talk)
        for talk in done:
            # The mark is ours alone to make.
            meta = {key: value for key, value in talk.meta.items() if key != _IMPORTING}
            store.describe(owner, talk.id, meta)
    except BaseException as problem:
        for name in names:
            if _is_left(store, owner, name, mark):
                store.delete(owner, name)
        if isinstance(problem, Moved):
            raise InputError("Somebody else makes a conversation of the same id: nothing was taken in.") from None
        raise
    return names


def _is_left(store: Store, owner: str, name: str, mark: Mapping[str, Any] | None = None) -> bool:
    """Whether this is what an earlier try has left, or the one of this mark, and nobody has gone on with it."""
    there = store.summary(owner, name)
    if there is None or (_IMPORTING not in there.meta if mark is None else there.meta != mark):
        return False
    # Whoever runs a turn takes a lease.
    return all(head.token == 0 for head in store.branches(owner, name))


def _write(store: Store, owner: str, talk: Talk, mark: Mapping[str, Any]) -> None:
    """Turn by turn. Until all is there it is marked, and a later try begins anew."""
    if _is_left(store, owner, talk.id):
        store.delete(owner, talk.id)
    for limb in talk.limbs:
        turns = {turn.id: turn for turn in limb.turns}
        place = limb.start
        # Something may hold before anything was said.
        records = () if limb.entries else limb.records
        at = talk.created or now()
        begun = Commit(branch=limb.name, expect=0, source=limb.source, records=records, at=at, meta=mark)
        revision = store.write(owner, talk.id, begun).revision
        for turn, part in groupby(limb.entries, key=lambda entry: entry.turn):
            entries = tuple(part)
            last = place + len(entries) == limb.stop
            commit = Commit(
                branch=limb.name,
                expect=revision,
                entries=entries,
                turn=turns.get(turn),
                records=limb.records if last else (),
                at=(talk.updated if last else entries[-1].at) or now(),
                entry_meta={i: limb.metas[place + i] for i in range(len(entries)) if place + i in limb.metas},
            )
            revision = store.write(owner, talk.id, commit).revision
            place += len(entries)


def _check(talk: Talk) -> None:
    """Raise `InputError` for what no provider takes: another role than the entry's, a call or a result on its own."""
    known: dict[str, Limb] = {}
    waits: dict[str, list[tuple[str, ...]]] = {}
    for limb in talk.limbs:
        before, size = limb, limb.start
        while size and size <= before.start and before.source:
            before = known[before.source[0]]
        waiting = waits[before.name][size - before.start - 1] if size else ()
        known[limb.name], waits[limb.name] = limb, []
        for entry in limb.entries:
            try:
                seen = WIRES[entry.wire].view(entry.native) if entry.wire in WIRES else None
                if seen and (seen.role != entry.role or (seen.role == "tool") != bool(seen.call_id)):
                    raise ValueError(f"has another role than {entry.role!r}")
                waiting = waiting_behind(entry, waiting)
            except (ValueError, TypeError, AttributeError) as problem:
                raise InputError(f"{talk.id!r} can't go on as a conversation: {entry.id!r} {problem}.") from None
            waits[limb.name].append(waiting)

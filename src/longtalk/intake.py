"""Taking conversations into a store, all or none of them. One that was cut off there is no conversation yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from longtalk.errors import InputError
from longtalk.portable import Talk
from longtalk.said import check_name
from longtalk.stores.base import Commit, Moved, Store
from longtalk.transcript import new_id, now

_IMPORTING = "longtalk importing"
"""Among the app's own data on a conversation while it is taken in."""


def take_in(store: Store, owner: str, talks: Sequence[Talk]) -> list[str]:
    """Take in conversations, and return their ids. Raises `InputError` if one is there already."""
    names = [talk.id for talk in talks]
    for name in names:
        check_name(name, "id")
        if names.count(name) > 1:
            raise InputError(f"The file holds two conversations {name!r}.")
        there = store.summary(owner, name)
        if there is not None and _IMPORTING not in there.meta:
            raise InputError(f"There is a conversation {name!r} already. Name another id, or delete it first.")
    # Nobody else has the same: what is removed again is what was made here.
    mark = {_IMPORTING: new_id()}
    done: list[Talk] = []
    try:
        for talk in talks:
            _write(store, owner, talk, mark)
            done.append(talk)
        for talk in done:
            store.describe(owner, talk.id, talk.meta)
    except BaseException as problem:
        for name in names:
            _remove(store, owner, name, mark)
        if isinstance(problem, Moved):
            raise InputError("Somebody else makes a conversation of the same id: nothing was taken in.") from None
        raise
    return names


def _remove(store: Store, owner: str, name: str, mark: Mapping[str, Any] | None = None) -> None:
    """Remove what an earlier try has left, or this one."""
    there = store.summary(owner, name)
    if there is not None and (_IMPORTING in there.meta if mark is None else there.meta == mark):
        store.delete(owner, name)


def _write(store: Store, owner: str, talk: Talk, mark: Mapping[str, Any]) -> None:
    """Turn by turn. Until all is there it is marked, and a later try begins anew."""
    _remove(store, owner, talk.id)
    for limb in talk.limbs:
        turns = {turn.id: turn for turn in limb.turns}
        place = limb.start
        begun = Commit(branch=limb.name, expect=0, source=limb.source, at=talk.created or now(), meta=mark)
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

"""All that a store has of a conversation, as one value: what a copy must have too.

A `Talk` is what was said, with turns, records and the app's own data. Beside it a store knows what turns have sent
(manifests), the keys that turns were asked for with, and when each branch was changed. What no branch shows any more
(entries behind a cut) nobody can read, and it is in no copy. Leases and revisions belong to the store that made them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from longtalk.pack import Entry
from longtalk.portable import Limb, Talk, limbs, whole
from longtalk.stores.base import BRIEF, MAIN, Asked, Head, Placed, Store
from longtalk.transcript import Turn, now


class Whole:
    """A conversation, from a store or from somewhere else."""

    def __init__(
        self,
        talk: Talk,
        paths: Sequence[Limb],
        *,
        manifests: dict[str, bytes] | None = None,
        requests: Sequence[Asked] = (),
        updated: dict[str, int] | None = None,
        heads: Sequence[Head] = (),
    ) -> None:
        self.talk = talk
        self.paths = {path.name: path for path in paths}
        """Each branch with all of its path."""
        self.manifests = manifests or {}
        """By the turn that sent it."""
        self.updated = updated or {}
        """When each branch was changed last."""
        self.heads = tuple(heads)
        """Where its branches stand in its store."""
        self.revisions = {head.branch: head.revision for head in heads}
        self.stored = bool(heads)
        """Whether it comes from a store."""
        self.touched = any(head.token for head in heads)
        """Whether a turn was ever run on it in its store."""
        self._asked = requests

    @property
    def id(self) -> str:
        return self.talk.id

    @cached_property
    def requests(self) -> tuple[Asked, ...]:
        """The keys of turns that some branch shows."""
        if not self._asked:
            return ()
        shown = {turn.id for path in self.paths.values() for turn in path.turns}
        return tuple(asked for asked in self._asked if asked.turn.id in shown)

    @cached_property
    def entries(self) -> int:
        """How many there are, those that branches share once."""
        return sum(len(limb.entries) for limb in self.talk.limbs)

    def key(self) -> tuple[Any, ...]:
        """All that two stores can both have of it. Of some kinds of records they need not keep those replaced."""
        talk = self.talk
        told = [(limb.name, limb.source, limb.entries, limb.turns, limb.metas) for limb in talk.limbs]
        records = {name: (by_kind(lasting(path.records)), shown(path.records)) for name, path in self.paths.items()}
        keys = [(asked.request, asked.branch, asked.turn.id, asked.place) for asked in self.requests]
        return talk.created, talk.meta, told, records, keys, self.manifests, self.updated


def of_talk(talk: Talk) -> Whole:
    """One that comes from no store."""
    # Some files don't know when it was: then it is now.
    talk = msgspec.structs.replace(talk, created=talk.created or now(), updated=talk.updated or now())
    paths = talk.limbs if len(talk.limbs) == 1 else [whole(talk, limb.name) for limb in talk.limbs]
    return Whole(talk, paths, updated={limb.name: talk.updated for limb in talk.limbs})


def read_whole(store: Store, owner: str, conversation: str) -> Whole | None:
    """All of a conversation as it is at one moment; None when there is none."""
    while True:
        known = store.summary(owner, conversation)
        heads = store.branches(owner, conversation) if known else []
        if known is None or not heads:
            return None
        # Main first, then those that are long: what another one shares with them is theirs.
        heads.sort(key=lambda head: (head.branch != MAIN, -head.size, head.branch))
        paths: list[Limb] = []
        manifests: dict[str, bytes] = {}
        for head in heads:
            name, size = head.branch, head.size
            manifests |= store.manifests(owner, conversation, name, 0, size)
            paths.append(
                Limb(
                    name=name,
                    entries=tuple(store.read(owner, conversation, name, 0, size).entries()),
                    turns=tuple([turn for _, turn in store.turns(owner, conversation, name, 0, size)]),
                    records=tuple([each for each in store.records(owner, conversation, name) if each.place < size]),
                    metas=store.metas(owner, conversation, name, 0, size),
                )
            )
        requests = store.requests(owner, conversation)
        again = {head.branch: head.revision for head in store.branches(owner, conversation)}
        if again == {head.branch: head.revision for head in heads}:
            break
        # What was read is not of one moment: a turn could look complete without its answer.
    # A branch alone shares nothing.
    parts = tuple(paths) if len(paths) == 1 else limbs(paths)
    return Whole(
        Talk(id=conversation, created=known.created, updated=known.updated, meta=known.meta, limbs=parts),
        paths,
        manifests=manifests,
        requests=requests,
        updated={head.branch: head.updated for head in heads},
        heads=heads,
    )


def to_keep(whole: Whole) -> Talk:
    """What an export has of it."""
    parts = [msgspec.structs.replace(limb, records=tuple(lasting(limb.records))) for limb in whole.talk.limbs]
    return msgspec.structs.replace(whole.talk, limbs=tuple(parts))


def lasting(records: Sequence[Placed]) -> list[Placed]:
    """Those of which every store keeps also what was replaced."""
    return [placed for placed in records if placed.record.kind not in BRIEF]


def by_kind(records: Sequence[Placed]) -> dict[str, list[Placed]]:
    """Nothing depends on which of two kinds came first."""
    found: dict[str, list[Placed]] = {}
    for placed in records:
        found.setdefault(placed.record.kind, []).append(placed)
    return found


def shown(records: Sequence[Placed]) -> dict[str, Placed]:
    """Of the other kinds, the newest on a path."""
    return {placed.record.kind: placed for placed in records if placed.record.kind in BRIEF}


def covers(more: Whole, less: Whole) -> bool:
    """Whether one has all that was said on each branch of another."""
    return all(
        name in more.paths and begins_with(more.paths[name].entries, path.entries) for name, path in less.paths.items()
    )


def holds(more: Whole, less: Whole, *, values: bool) -> bool:
    """Whether one has all that another has. Of the app's own data its `values` too, or that there are some."""

    def kept(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
        return all(key in mine and (mine[key] == value or not values) for key, value in theirs.items())

    return (
        covers(more, less)
        and kept(more.talk.meta, less.talk.meta)
        and less.manifests.keys() <= more.manifests.keys()
        and {asked.request.key for asked in less.requests} <= {asked.request.key for asked in more.requests}
        and all(
            all(kept(more.paths[name].metas.get(place, {}), meta) for place, meta in path.metas.items())
            and not Counter(lasting(path.records)) - Counter(lasting(more.paths[name].records))
            for name, path in less.paths.items()
        )
    )


def begins_with(longer: Sequence[Entry], shorter: Sequence[Entry]) -> bool:
    """Whether the same was said at the start of a path. How long an entry is may be counted in another way."""
    return len(shorter) <= len(longer) and all(
        one.id == other.id and one.native == other.native for one, other in zip(longer, shorter, strict=False)
    )


def without_closings(entries: Sequence[Entry]) -> Sequence[Entry]:
    """A path without what closes open calls at its end: the results may come yet."""
    size = len(entries)
    while size and entries[size - 1].mark == "closed":
        size -= 1
    return entries[:size]


def changed(turns: Sequence[Turn], known: Sequence[Turn]) -> list[Turn]:
    """Those of the turns that are not the same among the known."""
    held = {turn.id: turn for turn in known}
    return [turn for turn in turns if turn.id in held and held[turn.id] != turn]

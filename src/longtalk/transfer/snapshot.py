"""Snapshots of stored conversations, with everything that a copy must reproduce.

A `ConversationExport` has entries, turns, records and metadata. A snapshot adds data that only stores keep: the
manifests of turns, their idempotency keys, and the time of each branch's last change. Entries that no branch contains
any more (because the end of a branch was cut off) are not copied; nor are leases and revisions, which are valid only in
the store that issued them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from longtalk.stores.base import MAIN, BranchHead, KeyedTurn, PlacedRecord, Store
from longtalk.transcript.pack import Entry
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Turn, now
from longtalk.transfer.conversation_export import BranchPart, ConversationExport, full_branch, split_branches


class Snapshot:
    """A conversation with everything that a store keeps about it, read from a store or made from an export."""

    def __init__(
        self,
        export: ConversationExport,
        paths: Sequence[BranchPart],
        *,
        manifests: dict[str, bytes] | None = None,
        requests: Sequence[KeyedTurn] = (),
        updated: dict[str, int] | None = None,
        heads: Sequence[BranchHead] = (),
    ) -> None:
        self.export = export
        self.paths = {path.name: path for path in paths}
        """Each branch with all its entries, by name."""
        self.manifests = manifests or {}
        """The manifests of turns, by turn id."""
        self.updated = updated or {}
        """When each branch was last changed, by name, in milliseconds since 1970."""
        self.heads = tuple(heads)
        """The heads of the branches in the store; empty if the snapshot was made from an export."""
        self.revisions = {head.branch: head.revision for head in heads}
        self.stored = bool(heads)
        """True if the snapshot was read from a store."""
        self.touched = any(head.token for head in heads)
        """True if a turn has run on the conversation in this store."""
        self._asked = requests

    @property
    def id(self) -> str:
        return self.export.id

    @cached_property
    def requests(self) -> tuple[KeyedTurn, ...]:
        """The requests with an idempotency key whose turns are on at least one branch."""
        if not self._asked:
            return ()
        shown = {turn.id for path in self.paths.values() for turn in path.turns}
        return tuple(asked for asked in self._asked if asked.turn.id in shown)

    @cached_property
    def entries(self) -> int:
        """The number of entries in the conversation; those that several branches share are counted once."""
        return sum(len(part.entries) for part in self.export.branches)

    def key(self) -> tuple[Any, ...]:
        """Return a value that is equal for equal conversations, whichever stores they are in.

        It ignores replaced records of kinds that stores may discard.
        """
        export = self.export
        told = [(part.name, part.source, part.entries, part.turns, part.metas) for part in export.branches]
        records = {name: (by_kind(lasting(path.records)), shown(path.records)) for name, path in self.paths.items()}
        keys = [(asked.request, asked.branch, asked.turn.id, asked.position) for asked in self.requests]
        return export.created, export.meta, told, records, keys, self.manifests, self.updated


def snapshot_of(export: ConversationExport) -> Snapshot:
    """Return a snapshot made from an export, which is not in a store."""
    # Some formats have no times; the current time takes their place.
    export = msgspec.structs.replace(export, created=export.created or now(), updated=export.updated or now())
    paths = (
        export.branches if len(export.branches) == 1 else [full_branch(export, part.name) for part in export.branches]
    )
    return Snapshot(export, paths, updated={part.name: export.updated for part in export.branches})


def read_snapshot(store: Store, owner: str, conversation: str) -> Snapshot | None:
    """Return a consistent snapshot of a stored conversation, or None if the conversation does not exist."""
    while True:
        known = store.info(owner, conversation)
        heads = store.branches(owner, conversation) if known else []
        if known is None or not heads:
            return None
        # Main first, then the longest: shared entries are stored with the branch that comes first.
        heads.sort(key=lambda head: (head.branch != MAIN, -head.size, head.branch))
        paths: list[BranchPart] = []
        manifests: dict[str, bytes] = {}
        for head in heads:
            name, size = head.branch, head.size
            manifests |= store.manifests(owner, conversation, name, 0, size)
            paths.append(
                BranchPart(
                    name=name,
                    entries=tuple(store.read(owner, conversation, name, 0, size).entries()),
                    turns=tuple([turn for _, turn in store.turns(owner, conversation, name, 0, size)]),
                    records=tuple([each for each in store.records(owner, conversation, name) if each.position < size]),
                    metas=store.metas(owner, conversation, name, 0, size),
                )
            )
        requests = store.keyed_turns(owner, conversation)
        again = {head.branch: head.revision for head in store.branches(owner, conversation)}
        if again == {head.branch: head.revision for head in heads}:
            break
        # A branch changed while it was read, so a turn could lack its answer: read again.
    # A single branch shares no entries.
    parts = tuple(paths) if len(paths) == 1 else split_branches(paths)
    return Snapshot(
        ConversationExport(
            id=conversation, created=known.created, updated=known.updated, meta=known.meta, branches=parts
        ),
        paths,
        manifests=manifests,
        requests=requests,
        updated={head.branch: head.updated for head in heads},
        heads=heads,
    )


def to_export(whole: Snapshot) -> ConversationExport:
    """Return the part of a snapshot that an export contains."""
    parts = [msgspec.structs.replace(part, records=tuple(lasting(part.records))) for part in whole.export.branches]
    return msgspec.structs.replace(whole.export, branches=tuple(parts))


def lasting(records: Sequence[PlacedRecord]) -> list[PlacedRecord]:
    """Return the records of the kinds that every store keeps even after a newer record has replaced them."""
    return [placed for placed in records if not kind_of(placed.record.kind).may_discard_replaced]


def by_kind(records: Sequence[PlacedRecord]) -> dict[str, list[PlacedRecord]]:
    """Return the records grouped by kind. The order of records of different kinds has no meaning."""
    found: dict[str, list[PlacedRecord]] = {}
    for placed in records:
        found.setdefault(placed.record.kind, []).append(placed)
    return found


def shown(records: Sequence[PlacedRecord]) -> dict[str, PlacedRecord]:
    """Return, by kind, the newest record of each kind whose replaced records a store may discard."""
    return {placed.record.kind: placed for placed in records if kind_of(placed.record.kind).may_discard_replaced}


def covers(more: Snapshot, less: Snapshot) -> bool:
    """Return True if `more` has every branch of `less`, beginning with the same entries."""
    return all(
        name in more.paths and begins_with(more.paths[name].entries, path.entries) for name, path in less.paths.items()
    )


def holds(more: Snapshot, less: Snapshot, *, values: bool) -> bool:
    """Return True if `more` has everything that `less` has.

    With `values`, metadata must have equal values; otherwise it only needs to have the same keys.
    """

    def kept(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
        return all(key in mine and (mine[key] == value or not values) for key, value in theirs.items())

    return (
        covers(more, less)
        and kept(more.export.meta, less.export.meta)
        and less.manifests.keys() <= more.manifests.keys()
        and {asked.request.key for asked in less.requests} <= {asked.request.key for asked in more.requests}
        and all(
            all(kept(more.paths[name].metas.get(place, {}), meta) for place, meta in path.metas.items())
            and not Counter(lasting(path.records)) - Counter(lasting(more.paths[name].records))
            for name, path in less.paths.items()
        )
    )


def begins_with(longer: Sequence[Entry], shorter: Sequence[Entry]) -> bool:
    """Return True if `longer` begins with the entries of `shorter`. Their token counts may differ."""
    return len(shorter) <= len(longer) and all(
        one.id == other.id and one.native == other.native for one, other in zip(longer, shorter, strict=False)
    )


def without_closings(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries without closing results at the end.

    A closing result stands for the missing result of a tool call; the real result may replace it later.
    """
    size = len(entries)
    while size and entries[size - 1].mark == "closed":
        size -= 1
    return entries[:size]


def changed(turns: Sequence[Turn], known: Sequence[Turn]) -> list[Turn]:
    """Return the turns that differ from the turn with the same id in `known`; other turns are left out."""
    held = {turn.id: turn for turn in known}
    return [turn for turn in turns if turn.id in held and held[turn.id] != turn]

"""Snapshots of stored conversations, with everything that a copy must reproduce.

A `ConversationExport` has entries, turns, records and metadata. A snapshot adds data that only stores keep: the
manifests of turns, their idempotency keys, and the time of each branch's last change. It leaves out entries that no
branch contains any more (because the end of a branch was cut off), as well as leases and revisions, which are valid
only in the store that issued them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from itertools import takewhile
from operator import or_
from typing import Any

import msgspec

from longtalk.stores.base import MAIN, BranchHead, KeyedTurn, PlacedRecord, Store
from longtalk.transcript.lookalikes import mark_lookalike
from longtalk.transcript.pack import Entry
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Turn, now
from longtalk.transfer.conversation_export import BranchPart, ConversationExport, expand_branch, split_branches

_PROBES = 16
"""The number of entries to look at in one read, to find how many entries a branch shares with others."""


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
        """Each branch with all its entries, including shared ones, by branch name."""
        self.manifests = manifests or {}
        """The manifests of turns, by turn id."""
        self.updated = updated or {}
        """The time of each branch's last change, in milliseconds since 1970, by branch name."""
        self.heads = tuple(heads)
        """The heads of the branches in the store; empty if the snapshot was made from an export."""
        self.revisions = {head.branch: head.revision for head in heads}
        self.stored = bool(heads)
        """True if the snapshot was read from a store."""
        self.touched = any(head.token for head in heads)
        """True if a turn has run on the conversation in this store."""
        self._keyed_turns = requests

    @property
    def id(self) -> str:
        return self.export.id

    @cached_property
    def requests(self) -> tuple[KeyedTurn, ...]:
        """The turns with an idempotency key that are still on at least one branch."""
        if not self._keyed_turns:
            return ()
        turns = {turn.id for path in self.paths.values() for turn in path.turns}
        return tuple(keyed for keyed in self._keyed_turns if keyed.turn.id in turns)

    @cached_property
    def entries(self) -> int:
        """The number of entries in the conversation. An entry that several branches share is counted once."""
        return sum(len(part.entries) for part in self.export.branches)

    def comparison_key(self) -> tuple[Any, ...]:
        """Return a value that is equal for two snapshots if their conversations are equal, even in different stores.

        Replaced records that stores may discard are ignored.
        """
        export = self.export
        branches = [(part.name, part.source, part.entries, part.turns, part.metas) for part in export.branches]
        records = {
            name: (group_by_kind(select_permanent_records(path.records)), select_current_records(path.records))
            for name, path in self.paths.items()
        }
        keys = [(keyed.request, keyed.branch, keyed.turn.id, keyed.position) for keyed in self.requests]
        return export.created, export.meta, branches, records, keys, self.manifests, self.updated


def to_snapshot(export: ConversationExport) -> Snapshot:
    """Make a snapshot from an export, so that it can be compared with stored conversations and written to a store.

    Look-alikes of tags are marked, whatever the marks in the file say.
    """
    export = msgspec.structs.replace(export, branches=tuple(map(_mark_lookalikes, export.branches)))
    # Some file formats contain no times; then the current time is used.
    export = msgspec.structs.replace(export, created=export.created or now(), updated=export.updated or now())
    paths = (
        export.branches if len(export.branches) == 1 else [expand_branch(export, part.name) for part in export.branches]
    )
    updated = {part.name: export.updated for part in export.branches}
    return Snapshot(export, paths, manifests=export.manifests, updated=updated)


def _mark_lookalikes(part: BranchPart) -> BranchPart:
    entries = tuple(mark_lookalike(entry, is_first=entry.parent is None) for entry in part.entries)
    records = tuple([each for each in part.records if not kind_of(each.record.kind).is_derived])
    return msgspec.structs.replace(part, entries=entries, records=records)


def read_snapshot(store: Store, owner: str, conversation: str) -> Snapshot | None:
    """Return a consistent snapshot of a stored conversation, or None if the conversation does not exist."""
    while True:
        known = store.info(owner, conversation)
        heads = store.branches(owner, conversation) if known else []
        if known is None or not heads:
            return None
        # Main comes first, then the longest branch: shared entries are kept with the first branch that has them.
        heads.sort(key=lambda head: (head.branch != MAIN, -head.size, head.branch))
        paths: list[BranchPart] = []
        manifests: dict[str, bytes] = {}
        known_entries: dict[str, BranchPart] = {}
        for head in heads:
            name, size = head.branch, head.size
            start, shared = _find_shared_start(store, owner, conversation, head, known_entries)
            manifests |= store.manifests(owner, conversation, name, start, size)
            new = tuple(store.read(owner, conversation, name, start, size).entries())
            positions = {} if shared is None else shared.metas
            begun = () if shared is None else _list_turns_before(shared, start)
            part = BranchPart(
                name=name,
                entries=(*shared.entries[:start], *new) if shared is not None else new,
                turns=(*begun, *[turn for _, turn in store.turns(owner, conversation, name, start, size)]),
                records=_select_records(store.records(owner, conversation, name), size),
                metas={position: meta for position, meta in positions.items() if position < start}
                | store.metas(owner, conversation, name, start, size),
            )
            paths.append(part)
            known_entries |= {entry.id: part for entry in new}
        requests = store.keyed_turns(owner, conversation)
        again = {head.branch: head.revision for head in store.branches(owner, conversation)}
        if again == {head.branch: head.revision for head in heads}:
            break
        # A branch changed between these reads, so a turn could lack its answer: read again.
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


def _find_shared_start(
    store: Store, owner: str, conversation: str, head: BranchHead, known: Mapping[str, BranchPart]
) -> tuple[int, BranchPart | None]:
    """Return how many entries a branch begins with that were read already, and a branch that has them.

    `known` has a branch for each entry that was read. Branches that part stay apart, so the place is found by looking
    at a few entries; reading each branch whole would take the square of their number in a tree that forks at each
    message.
    """
    low, high, found = 0, head.size if known else 0, None
    while low < high:
        # Each read may be a round trip to a server, so one read looks at several entries.
        probes = range(low, high, max(1, (high - low) // _PROBES))
        picked = store.pick(owner, conversation, head.branch, [(i, i + 1) for i in probes])
        parts = [known.get(entry.id) for (entry,) in picked]
        shared = next((i for i, part in enumerate(parts) if part is None), len(parts))
        if not shared:
            break
        low, found = probes[shared - 1] + 1, parts[shared - 1]
        high = probes[shared] if shared < len(parts) else high
    if found is None:
        return 0, None
    # A branch that forks inside a turn and continues the turn has other entries with the same ids.
    first = next((i for i in range(low - 1, 0, -1) if found.entries[i - 1].turn != found.entries[low - 1].turn), 0)
    own = store.read(owner, conversation, head.branch, first, low).entries()
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(own, found.entries[first:low], strict=True)))
    return first + same, found


def _select_records(records: Sequence[PlacedRecord], size: int) -> tuple[PlacedRecord, ...]:
    """Return the records of a branch with `size` entries, without those that can be made again."""
    return tuple([each for each in records if each.position < size and not kind_of(each.record.kind).is_derived])


def _list_turns_before(part: BranchPart, stop: int) -> list[Turn]:
    """Return the turns of a branch that begin before a position."""
    begun = {entry.turn for entry in part.entries[:stop]}
    return [turn for turn in part.turns if turn.id in begun]


def to_export(snapshot: Snapshot) -> ConversationExport:
    """Return the part of a snapshot that an export contains."""
    parts = [
        msgspec.structs.replace(part, records=tuple(select_permanent_records(part.records)))
        for part in snapshot.export.branches
    ]
    return msgspec.structs.replace(snapshot.export, branches=tuple(parts), manifests=snapshot.manifests)


def select_permanent_records(records: Sequence[PlacedRecord]) -> list[PlacedRecord]:
    """Return the records of kinds that a store must keep even after a newer record has replaced them."""
    return [placed for placed in records if not kind_of(placed.record.kind).may_discard_replaced]


def group_by_kind(records: Sequence[PlacedRecord]) -> dict[str, list[PlacedRecord]]:
    """Group records by kind, in order. The order between records of different kinds has no meaning."""
    found: dict[str, list[PlacedRecord]] = {}
    for placed in records:
        found.setdefault(placed.record.kind, []).append(placed)
    return found


def select_current_records(records: Sequence[PlacedRecord]) -> dict[str, PlacedRecord]:
    """Return, by kind, the newest record of each kind whose replaced records a store may discard."""
    return {placed.record.kind: placed for placed in records if kind_of(placed.record.kind).may_discard_replaced}


def has_all_entries(more: Snapshot, less: Snapshot) -> bool:
    """Return True if every branch of `less` is also in `more`, and begins there with the same entries."""
    return all(
        name in more.paths and starts_with_entries(more.paths[name].entries, path.entries)
        for name, path in less.paths.items()
    )


def has_all_data(more: Snapshot, less: Snapshot, *, values: bool, on_any_branch: bool = False) -> bool:
    """Return True if `more` has all entries, metadata, manifests, idempotency keys and permanent records of `less`.

    With `values`, the values in the metadata must be equal; otherwise it is enough that `more` has the same keys. With
    `on_any_branch`, it is enough that some branch of `more` has a record.
    """
    records = {name: Counter(select_permanent_records(path.records)) for name, path in more.paths.items()}
    if on_any_branch:
        records = dict.fromkeys(records, reduce(or_, records.values(), Counter()))

    def has_meta(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
        return all(key in mine and (mine[key] == value or not values) for key, value in theirs.items())

    return (
        has_all_entries(more, less)
        and has_meta(more.export.meta, less.export.meta)
        and less.manifests.keys() <= more.manifests.keys()
        and {keyed.request.key for keyed in less.requests} <= {keyed.request.key for keyed in more.requests}
        and all(
            all(has_meta(more.paths[name].metas.get(position, {}), meta) for position, meta in path.metas.items())
            and Counter(select_permanent_records(path.records)) <= records[name]
            for name, path in less.paths.items()
        )
    )


def starts_with_entries(longer: Sequence[Entry], shorter: Sequence[Entry]) -> bool:
    """Return True if `longer` begins with the entries of `shorter`. Only ids and content are compared."""
    return len(shorter) <= len(longer) and all(
        one.id == other.id and one.native == other.native for one, other in zip(longer, shorter, strict=False)
    )


def drop_closing_results(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries without closing results at the end.

    A closing result stands in for a missing tool result, and the real result may replace it later.
    """
    size = len(entries)
    while size and entries[size - 1].condition == "closed":
        size -= 1
    return entries[:size]


def list_changed_turns(turns: Sequence[Turn], known: Sequence[Turn]) -> list[Turn]:
    """Return the turns that `known` has with the same id but with different content."""
    old = {turn.id: turn for turn in known}
    return [turn for turn in turns if turn.id in old and old[turn.id] != turn]

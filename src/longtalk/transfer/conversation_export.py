"""Conversations as values that don't depend on a store, for exports and imports.

A `ConversationExport` has a `BranchPart` for each branch. A part leaves out the entries that its branch shares with an
earlier branch, so that each entry occurs once. `check_export` verifies that a store can hold the conversation in an
untrusted export.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NoReturn

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import InputError
from longtalk.stores._rows import to_utf8_json
from longtalk.stores.base import MAIN, PlacedRecord
from longtalk.stores.checks import check_entry_id, check_parents
from longtalk.transcript.pack import OWN, Entry
from longtalk.transcript.pack_check import is_possible
from longtalk.transcript.pack_index import MAX_COUNT, MAX_SHAPES
from longtalk.transcript.record_kinds import KINDS
from longtalk.transcript.transcript import Record, Turn


class BranchPart(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a branch that it does not share with an earlier branch: its own entries, turns and records."""

    name: str
    source: tuple[str, int] | None = None
    """The earlier branch from which this one forks, and the number of entries they share; None if there is none."""
    entries: tuple[Entry, ...] = ()
    turns: tuple[Turn, ...] = ()
    """The turns that have an entry in this part."""
    records: tuple[PlacedRecord, ...] = ()
    """The records attached to entries of this part; on the first branch also those without an entry (position -1)."""
    metas: dict[int, dict[str, Any]] = {}
    """The metadata of the entries of this part, by position in the full branch."""

    @property
    def start(self) -> int:
        """The position of the first entry of this part in the full branch."""
        return self.source[1] if self.source else 0

    @property
    def stop(self) -> int:
        """The number of entries in the full branch, including shared ones."""
        return self.start + len(self.entries)


class ConversationExport(msgspec.Struct, frozen=True, kw_only=True):
    """A complete conversation. Each of its branches comes after the branch that its `source` names."""

    id: str
    created: int = 0
    updated: int = 0
    meta: dict[str, Any] = {}
    branches: tuple[BranchPart, ...] = ()
    manifests: dict[str, bytes] = {}
    """The manifests of turns, by turn id. A turn that was not made by Longtalk has none."""


# Branches


def expand_branch(export: ConversationExport, branch: str = MAIN) -> BranchPart:
    """Return a branch with all its entries, including shared ones, as a part without a source.

    Raises `InputError` if the branch does not exist.
    """
    found: list[BranchPart] = []
    needed, size = branch, None
    for part in reversed(export.branches):
        if part.name == needed:
            stop = part.stop if size is None else max(part.start, min(size, part.stop))
            found.append(msgspec.structs.replace(part, entries=part.entries[: stop - part.start]))
            if part.source is None:
                break
            needed, size = part.source[0], part.start if size is None else min(size, part.start)
    if not found:
        names = ", ".join(repr(part.name) for part in export.branches) or "none"
        raise InputError(f"Conversation {export.id!r} has no branch {branch!r}. Its branches: {names}.")
    found.reverse()
    entries = [entry for part in found for entry in part.entries]
    here = {entry.turn for entry in entries}
    # If a turn continues on a later branch, the version on that branch is the newest.
    turns = {turn.id: turn for part in found for turn in part.turns if turn.id in here}
    # Compute `stop` once per part, since there may be many long branches.
    parts = [(part, part.stop) for part in found]
    return BranchPart(
        name=branch,
        entries=tuple(entries),
        turns=tuple(turns.values()),
        records=tuple(placed for part, stop in parts for placed in part.records if placed.position < stop),
        metas={position: meta for part, stop in parts for position, meta in part.metas.items() if position < stop},
    )


def split_branches(paths: Iterable[BranchPart]) -> tuple[BranchPart, ...]:
    """Reduce full branches to parts without shared entries.

    The source of a part is the earlier branch with which its branch shares the most entries.
    """
    parts: list[BranchPart] = []
    # The entries form a trie: each node has a number, and `owners` has the first branch that reached the node.
    steps: dict[tuple[int, Entry, str], int] = {}
    owners = [""]
    full: dict[str, BranchPart] = {}
    for path in paths:
        here, size, source = 0, 0, ""
        for position, entry in enumerate(path.entries):
            meta = path.metas.get(position)
            step = (here, entry, "" if meta is None else json.dumps(meta, sort_keys=True))
            if step in steps:
                size, source = position + 1, owners[steps[step]]
            else:
                steps[step] = len(owners)
                owners.append(path.name)
            here = steps[step]
        entries = path.entries[size:]
        turns = {entry.turn for entry in entries}
        part = BranchPart(
            name=path.name,
            source=(source, size) if size else None,
            entries=entries,
            turns=tuple(turn for turn in path.turns if turn.id in turns),
            records=_list_own_records(path, size, full[source] if size else None),
            metas={position: meta for position, meta in path.metas.items() if position >= size},
        )
        parts.append(part)
        full[path.name] = path
    return tuple(parts)


def _list_own_records(path: BranchPart, size: int, source: BranchPart | None) -> tuple[PlacedRecord, ...]:
    """Return the records of a branch that it does not inherit from its source branch."""
    found = [placed for placed in path.records if placed.position >= (size or -1)]
    for kind in (kind.name for kind in KINDS if source and kind.own_branch_only):
        mine, others = (
            [each for each in part.records if each.record.kind == kind and each.position < size]
            for part in (path, source or path)
        )
        if mine[-1:] != others[-1:]:
            # Pins and exclusions are lists, the other records are objects.
            empty = b"[]" if kind in ("pins", "excluded") else b"{}"
            nothing = PlacedRecord(Record(kind, path.entries[size - 1].id, 0, empty), size - 1)
            found.insert(0, mine[-1] if mine else nothing)
    return tuple(found)


def check_export(export: ConversationExport) -> None:
    """Raise `ValueError` unless a store can hold this conversation and an export of it can be read again."""
    to_utf8_json(export.meta)
    if not all(0 <= at < 2**47 for at in (export.created, export.updated)):
        refuse("its creation time or the time of its last change is out of range")
    entries = [entry for part in export.branches for entry in part.entries]
    # The state format can write, but not read, more combinations than this.
    if len({(entry.kind, entry.role, entry.wire) for entry in entries}) > MAX_SHAPES:
        refuse(f"its entries have more than {MAX_SHAPES} combinations of kind, role and wire")
    if sum(entry.tokens for entry in entries) > MAX_COUNT:
        refuse("its token counts are too large")
    known: dict[str, BranchPart] = {}
    for part in export.branches:
        if part.name in known:
            refuse(f"it has two branches named {part.name!r}")
        if part.source and (part.source[0] not in known or not 0 <= part.start <= known[part.source[0]].stop):
            refuse(f"branch {part.name!r} begins after an entry that does not exist")
        check_parents(_find_parent(part, known), part.entries)
        for entry in part.entries:
            _check_entry(entry)
        here = {entry.turn for entry in part.entries}
        for turn in part.turns:
            if not all(-(2**63) <= at < 2**63 for at in (turn.started, turn.ended)):
                refuse(f"the start or end time of turn {turn.id!r} is out of range")
            if turn.id not in here:
                refuse(f"turn {turn.id!r} has no entry on branch {part.name!r}")
        if any(not -1 <= placed.position < part.stop for placed in part.records):
            refuse(f"a record of branch {part.name!r} is attached to an entry that does not exist")
        for position, meta in part.metas.items():
            to_utf8_json(meta)
            if not part.start <= position < part.stop:
                refuse(f"branch {part.name!r} has metadata for position {position}, but no entry there")
        known[part.name] = part


def _find_parent(part: BranchPart, known: dict[str, BranchPart]) -> str | None:
    """Return the id of the entry before the first entry of a part; None if the conversation begins with this part."""
    size = part.start
    while size and part.source:
        part = known[part.source[0]]
        if size > part.start:
            return part.entries[size - part.start - 1].id
    return None


def _check_entry(entry: Entry) -> None:
    check_entry_id(entry)
    # The same range as in a state, so that every time can be converted to a date.
    if not 0 <= entry.at < 2**47 or not 0 <= entry.tokens <= MAX_COUNT:
        refuse(f"the time or token count of entry {entry.id!r} is out of range")
    try:
        # Entries are spliced into requests, so an entry of several JSON objects could forge further messages.
        json_bytes.check_object(entry.native)
    except ValueError as problem:
        refuse(f"entry {entry.id!r} is not a single JSON object ({problem})")
    if not is_possible(entry.kind, entry.role, entry.wire):
        refuse(f"entry {entry.id!r} is {entry.kind!r} with the role {entry.role!r} and the wire {entry.wire!r}")
    if entry.wire == OWN:
        message = json_bytes.value(entry.native)
        if not isinstance(message.get("text"), str) or (entry.kind == "event" and "source" not in message):
            refuse(f"entry {entry.id!r} is an event or system message that lacks its text or source")


def refuse(reason: str) -> NoReturn:
    """Raise `ValueError` with this reason."""
    raise ValueError(reason)

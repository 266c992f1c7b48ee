"""Import conversations into a store. If an import fails midway, the next import replaces incomplete conversations.

Longtalk's own exports are imported all together or not at all. Files of other tools can be large, so their
conversations are imported one at a time, and importing a file again is harmless: unchanged conversations are skipped,
new entries are added, and conversations that changed in both places are skipped and reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from longtalk._util.checks import check_id
from longtalk.errors import InputError
from longtalk.stores.base import HeadMoved, Store
from longtalk.transfer.conversation_export import BranchPart, ConversationExport
from longtalk.transfer.owners import Owners, choose_owner
from longtalk.transfer.restore import is_incomplete, make_mark, read_complete, remove_mark, write_more, write_new
from longtalk.transfer.snapshot import (
    Snapshot,
    drop_closing_results,
    has_all_entries,
    read_snapshot,
    starts_with_entries,
    to_export,
    to_snapshot,
)
from longtalk.wires import NAMES, WIRES
from longtalk.wires.pairing import track_open_calls

OTHER_OWNERS = "conversations of other owners were not imported"
"""The note that counts conversations of owners who were not chosen."""
How = Literal["new", "grown", "here", "left"]
BEING_WRITTEN = "another process is writing to it; try again later"
"""The reason given if a conversation is skipped because another process is changing it."""
_DIFFERENT = (
    "the store has a different conversation with this id, perhaps from another tool or from before an edit; "
    "to keep both, import for another owner (--owner)"
)
_CONTINUED_TWICE = (
    "it was continued both in the store and in the other tool; "
    "to keep both, import for another owner (--owner); otherwise delete the stored one and import again"
)


class ImportedConversation(msgspec.Struct, frozen=True):
    """The outcome of importing or copying one conversation."""

    id: str
    how: How
    """`new`, `grown` (new entries were added), `here` (already in the store) or `left` (skipped)."""
    entries: int = 0
    """The number of entries in the conversation. An entry that several branches share is counted once."""
    branches: int = 0
    why: str = ""
    """Why the conversation was skipped; empty if it was not."""
    owner: str = ""
    """The owner in the store to which the conversation was written."""


class ImportResult(msgspec.Struct, frozen=True):
    """The outcome of an import or copy for each conversation, with notes about content that was left out or changed."""

    conversations: tuple[ImportedConversation, ...] = ()
    notes: dict[str, int] = {}
    """The number of times that content was left out or changed, by a description in the plural."""

    @property
    def ids(self) -> list[str]:
        """The ids of the imported conversations that are now in the store."""
        return [each.id for each in self.conversations if each.how != "left"]

    @property
    def left(self) -> list[ImportedConversation]:
        """The conversations that were skipped."""
        return [each for each in self.conversations if each.how == "left"]

    def count(self, how: How) -> int:
        """Return the number of conversations with this outcome."""
        return sum(each.how == how for each in self.conversations)


class ParsedConversation(msgspec.Struct, frozen=True):
    """A conversation read from another tool's file. If it can't be imported, `problem` says why."""

    export: ConversationExport
    notes: dict[str, int] = {}
    problem: str = ""
    owner: str | None = None
    """The owner in the source; None if the source has no owners."""


Progress = Callable[[int], None]
"""A function that is called with the number of conversations processed so far."""


def import_exports(
    store: Store, owner: str, exports: Sequence[ConversationExport], *, dry_run: bool = False
) -> ImportResult:
    """Import either all of these conversations or none. With `dry_run`, write nothing.

    Raises `InputError` if the store has a different conversation with one of the ids, or if an id occurs twice.
    """
    names = [export.id for export in exports]
    for export in exports:
        check_calls(export)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"The file contains two conversations with the id {twice[0]!r}: rename or remove one.")
    there = {name for name in names if store.info(owner, name) is not None and not is_incomplete(store, owner, name)}
    news = [to_snapshot(export) for export in exports]
    for new in news:
        check_id(new.id)
        if new.id in there and (found := _find_difference(store, owner, new)):
            raise InputError(f"The store already has {found}. Choose another id, or delete it first.")
    mark = make_mark()
    todo = [new for new in news if new.id not in there and not dry_run]
    try:
        for new in todo:
            if is_incomplete(store, owner, new.id):
                store.delete(owner, new.id)
            write_new(store, owner, new, mark, finish=False)
        for new in todo:
            store.describe(owner, new.id, remove_mark(new.export.meta))
    except BaseException as problem:
        for new in todo:
            if is_incomplete(store, owner, new.id, mark):
                store.delete(owner, new.id)
        if isinstance(problem, HeadMoved):
            raise InputError(
                "Another process is creating a conversation with the same id. Nothing was imported; try again."
            ) from None
        raise
    return ImportResult(tuple(make_outcome(new, "here" if new.id in there else "new", owner) for new in news))


def import_each(
    store: Store,
    owner: str,
    found: Iterable[ParsedConversation],
    *,
    owners: Owners = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportResult:
    """Import conversations of another tool one at a time, and return the outcome for each.

    With `dry_run`, write nothing. `owners` says for which owner each conversation is imported.
    """
    outcomes: list[ImportedConversation] = []
    notes: Counter[str] = Counter()
    for count, each in enumerate(found, 1):
        target, why = choose_owner(each.owner, each.export.id, owner, owners)
        if each.problem or why:
            outcomes.append(ImportedConversation(each.export.id, "left", why=each.problem or why))
        elif target is None:
            notes[OTHER_OWNERS] += 1
        else:
            done = _import_parsed(store, target, each, dry_run=dry_run)
            outcomes.append(done)
            notes.update(each.notes if done.how in ("new", "grown") else {})
        if progress:
            progress(count)
    return ImportResult(tuple(outcomes), dict(notes))


def _import_parsed(store: Store, owner: str, parsed: ParsedConversation, *, dry_run: bool) -> ImportedConversation:
    try:
        check_id(parsed.export.id)
        check_calls(parsed.export)
        return import_one(store, owner, to_snapshot(parsed.export), dry_run=dry_run)
    except (InputError, HeadMoved) as problem:
        why = BEING_WRITTEN if isinstance(problem, HeadMoved) else str(problem)
        return ImportedConversation(parsed.export.id, "left", why=why, owner=owner)


def import_one(store: Store, owner: str, new: Snapshot, *, dry_run: bool = False) -> ImportedConversation:
    """Import a conversation, or add the entries that are new since its last import, and return the outcome.

    With `dry_run`, return the outcome but write nothing.
    """
    there = read_complete(store, owner, new.id, dry_run=dry_run)
    if there is None:
        if not dry_run:
            write_new(store, owner, new, make_mark())
        return make_outcome(new, "new", owner)
    if has_all_entries(there, new):
        return make_outcome(new, "here", owner)
    if there.touched or not _has_all_but_closing_results(new, there):
        why = _CONTINUED_TWICE if there.touched else _DIFFERENT
        return ImportedConversation(new.id, "left", why=why, owner=owner)
    if not dry_run:
        write_more(store, owner, new, there)
    return make_outcome(new, "grown", owner)


def _has_all_but_closing_results(more: Snapshot, less: Snapshot) -> bool:
    """Return True if `more` has all entries of `less`, not counting closing results at the ends of branches.

    A closing result stands in for a missing tool result; in `more`, the real result may have replaced it.
    """
    return all(
        name in more.paths and starts_with_entries(more.paths[name].entries, drop_closing_results(path.entries))
        for name, path in less.paths.items()
    )


def _find_difference(store: Store, owner: str, new: Snapshot) -> str:
    """Say what the store holds under the id of this snapshot; return an empty text for exactly the same."""
    there = read_snapshot(store, owner, new.id)
    stored, export = to_export(there) if there is not None else None, new.export
    if stored is None or (stored.created, stored.branches) != (export.created, export.branches):
        return f"a different conversation with the id {new.id!r}"
    return f"the conversation {new.id!r} with another title or other metadata" if stored.meta != export.meta else ""


def make_outcome(new: Snapshot, how: How, owner: str) -> ImportedConversation:
    """Return an outcome with this `how` and with the conversation's numbers of entries and branches."""
    return ImportedConversation(new.id, how, new.entries, len(new.paths), owner=owner)


def check_calls(export: ConversationExport) -> None:
    """Raise `InputError` if no provider would accept this conversation.

    That is the case if the wire of a message is unknown, if the role in a message differs from that of its entry, if a
    tool result has no call, or if another message comes between a call and its result.
    """
    known: dict[str, BranchPart] = {}
    # Remember the open calls only at positions where a branch begins, since only there are they needed again.
    starts = {part.start for part in export.branches}
    waits: dict[tuple[str, int], tuple[str, ...]] = {}
    for part in export.branches:
        before, size = part, part.start
        while size and size <= before.start and before.source:
            before = known[before.source[0]]
        waiting = waits[before.name, size] if size else ()
        known[part.name] = part
        for end, entry in enumerate(part.entries, part.start + 1):
            try:
                if entry.wire not in NAMES:
                    raise ValueError(f"has the unknown wire {entry.wire!r}; known wires: {', '.join(sorted(NAMES))}")
                seen = WIRES[entry.wire].view(entry.native) if entry.wire in WIRES else None
                if seen and (seen.role != entry.role or (seen.role == "tool") != bool(seen.call_id)):
                    raise ValueError(f"is marked as {entry.role!r} but its message has another role")
                waiting = track_open_calls(entry, waiting)
            except (ValueError, TypeError, AttributeError) as problem:
                raise InputError(
                    f"No provider would accept conversation {export.id!r}: entry {entry.id!r} {problem}."
                ) from None
            if end in starts:
                waits[part.name, end] = waiting

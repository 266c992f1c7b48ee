"""Import conversations into a store. An import that fails midway leaves no partial conversation that users can see.

Longtalk's own exports are imported all together or not at all. Files of other tools can be large, so their
conversations are imported one at a time, and importing a file again is harmless: unchanged conversations are skipped,
new entries are added, and conversations that have diverged are skipped and reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from longtalk._util.checks import check_name
from longtalk.errors import InputError
from longtalk.stores.base import HeadMoved, Store
from longtalk.transfer.conversation_export import BranchPart, ConversationExport
from longtalk.transfer.restore import clean, is_left, new_mark, read_complete, write_more, write_new
from longtalk.transfer.snapshot import (
    Snapshot,
    begins_with,
    covers,
    read_snapshot,
    snapshot_of,
    to_export,
    without_closings,
)
from longtalk.wires import WIRES
from longtalk.wires.pairing import open_calls_after

How = Literal["new", "grown", "here", "left"]
_ELSEWHERE = "both versions have continued since: delete this one, or import for another owner"
_MOVED = "another process is writing to it"


class ImportedConversation(msgspec.Struct, frozen=True):
    """The outcome of importing or copying one conversation."""

    id: str
    how: How
    """`new`, `grown` (new entries were added), `here` (already in the store) or `left` (skipped)."""
    entries: int = 0
    """The number of entries in the conversation; those that several branches share are counted once."""
    branches: int = 0
    why: str = ""
    """The reason why the conversation was skipped; empty if it was not."""


class ImportResult(msgspec.Struct, frozen=True):
    """The outcome of an import, by conversation, with notes about content that was left out or changed."""

    conversations: tuple[ImportedConversation, ...] = ()
    notes: dict[str, int] = {}
    """For each description of content that was left out or changed, how often that happened."""

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
    """A conversation read from another tool's file, with notes, or with the problem that prevents its import."""

    export: ConversationExport
    notes: dict[str, int] = {}
    problem: str = ""


Progress = Callable[[int], None]
"""A function that is called with the number of conversations processed so far."""


def import_exports(store: Store, owner: str, exports: Sequence[ConversationExport]) -> ImportResult:
    """Import all of these conversations or none; raise `InputError` if an id is used by a different conversation."""
    names = [export.id for export in exports]
    for export in exports:
        check_calls(export)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"The file holds two conversations with the id {twice[0]!r}.")
    there = {name for name in names if store.info(owner, name) is not None and not is_left(store, owner, name)}
    news = [snapshot_of(export) for export in exports]
    for new in news:
        check_name(new.id, "id")
        if new.id in there and not _is_same(store, owner, new):
            raise InputError(f"A conversation {new.id!r} already exists. Choose another id, or delete it first.")
    mark = new_mark()
    todo = [new for new in news if new.id not in there]
    try:
        for new in todo:
            if is_left(store, owner, new.id):
                store.delete(owner, new.id)
            write_new(store, owner, new, mark, finish=False)
        for new in todo:
            store.describe(owner, new.id, clean(new.export.meta))
    except BaseException as problem:
        for new in todo:
            if is_left(store, owner, new.id, mark):
                store.delete(owner, new.id)
        if isinstance(problem, HeadMoved):
            raise InputError(
                "Another process is creating a conversation with the same id: nothing was imported."
            ) from None
        raise
    return ImportResult(tuple(told(new, "here" if new.id in there else "new") for new in news))


def import_each(
    store: Store, owner: str, found: Iterable[ParsedConversation], *, progress: Progress | None = None
) -> ImportResult:
    """Import conversations of another tool one at a time, and return the outcome for each."""
    taken: list[ImportedConversation] = []
    notes: Counter[str] = Counter()
    for each in found:
        if each.problem:
            taken.append(ImportedConversation(each.export.id, "left", why=each.problem))
        else:
            try:
                check_name(each.export.id, "id")
                check_calls(each.export)
                done = import_one(store, owner, snapshot_of(each.export))
            except (InputError, HeadMoved) as problem:
                done = ImportedConversation(
                    each.export.id, "left", why=_MOVED if isinstance(problem, HeadMoved) else str(problem)
                )
            taken.append(done)
            notes.update(each.notes if done.how in ("new", "grown") else {})
        if progress:
            progress(len(taken))
    return ImportResult(tuple(taken), dict(notes))


def import_one(store: Store, owner: str, new: Snapshot) -> ImportedConversation:
    """Import a conversation, or only what was added to it since the last import, and return the outcome.

    Raises `HeadMoved` if another process writes to the conversation at the same time.
    """
    there = read_complete(store, owner, new.id)
    if there is None:
        write_new(store, owner, new, new_mark())
        return told(new, "new")
    if covers(there, new):
        return told(new, "here")
    if there.touched or not _covers_but_closings(new, there):
        return ImportedConversation(
            new.id, "left", why=_ELSEWHERE if there.touched else "what is here says something else"
        )
    write_more(store, owner, new, there)
    return told(new, "grown")


def _covers_but_closings(more: Snapshot, less: Snapshot) -> bool:
    """Return True if `more` has all entries of `less`, except closing results at the ends of branches.

    Closing results stand for missing results of tool calls; the real results may have replaced them.
    """
    return all(
        name in more.paths and begins_with(more.paths[name].entries, without_closings(path.entries))
        for name, path in less.paths.items()
    )


def _is_same(store: Store, owner: str, new: Snapshot) -> bool:
    """Return True if the store holds exactly the same conversation as this snapshot."""
    there = read_snapshot(store, owner, new.id)
    if there is None:
        return False
    held, export = to_export(there), new.export
    return (held.created, held.meta, held.branches) == (export.created, export.meta, export.branches)


def told(new: Snapshot, how: How) -> ImportedConversation:
    """Return an outcome for a conversation, with its numbers of entries and branches."""
    return ImportedConversation(new.id, how, new.entries, len(new.paths))


def check_calls(export: ConversationExport) -> None:
    """Raise `InputError` for messages that no provider accepts.

    These are messages with a wrong role, and tool calls and results without their counterpart.
    """
    known: dict[str, BranchPart] = {}
    waits: dict[str, list[tuple[str, ...]]] = {}
    for part in export.branches:
        before, size = part, part.start
        while size and size <= before.start and before.source:
            before = known[before.source[0]]
        waiting = waits[before.name][size - before.start - 1] if size else ()
        known[part.name], waits[part.name] = part, []
        for entry in part.entries:
            try:
                seen = WIRES[entry.wire].view(entry.native) if entry.wire in WIRES else None
                if seen and (seen.role != entry.role or (seen.role == "tool") != bool(seen.call_id)):
                    raise ValueError(f"has another role than {entry.role!r}")
                waiting = open_calls_after(entry, waiting)
            except (ValueError, TypeError, AttributeError) as problem:
                raise InputError(
                    f"The conversation {export.id!r} can't be continued: entry {entry.id!r} {problem}."
                ) from None
            waits[part.name].append(waiting)

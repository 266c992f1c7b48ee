"""Copy conversations from one store to another without loss, and verify each copy.

Conversations are copied in the order of their last change, oldest first. Each copy is written completely, read back and
compared, and its checksums are verified. Copying again skips unchanged conversations, restarts incomplete copies and
adds new entries. A store in use can therefore be copied in two passes: all conversations while it is busy, then the
changes while it is idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from longtalk.errors import InputError, LongtalkError
from longtalk.stores.base import ConversationInfo, HeadMoved, Store
from longtalk.transcript.transcript import now
from longtalk.transfer.load import ImportedConversation, ImportResult, Progress, told
from longtalk.transfer.restore import IMPORTING, clean, new_mark, read_complete, remove, write_more, write_new
from longtalk.transfer.snapshot import Snapshot, holds, read_snapshot, shown

_PAGE = 10_000
_BATCH = 1_000
_AT_ONCE = 4


def copy_conversations(
    source: Store,
    target: Store,
    owner: str,
    *,
    ids: Sequence[str] = (),
    since: int | str | None = None,
    progress: Progress | None = None,
) -> ImportResult:
    """Copy conversations to another store, and return the outcome for each; see `Archive.copy_to`."""
    if source is target or repr(source) == repr(target) != "InMemory()":
        raise InputError("A store can't be copied to itself: name another target.")
    taken: list[ImportedConversation] = []
    names = _chosen(source, owner, ids, since)
    # Several copies run in parallel, since most of the time goes into waiting for a server.
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for start in range(0, len(names), _BATCH):
            batch = names[start : start + _BATCH]
            for done in threads.map(lambda name: _copy(source, target, owner, name), batch):
                if done is not None:
                    taken.append(done)
                if progress:
                    progress(len(taken))
    return ImportResult(tuple(taken))


def _chosen(source: Store, owner: str, ids: Sequence[str], since: int | str | None) -> list[str]:
    """Return the ids of the conversations to copy, the most recently changed last."""
    if isinstance(since, str):
        since = _known(source, owner, since).updated
    named = [_known(source, owner, name) for name in dict.fromkeys(ids)]
    found = named if ids else list(_every(source, owner, since))
    return [each.id for each in reversed(found) if since is None or each.updated >= since]


def _known(source: Store, owner: str, name: str) -> ConversationInfo:
    found = source.info(owner, name)
    if found is None:
        raise InputError(f"Conversation {name!r} was not found in the source store.")
    return found


def _every(source: Store, owner: str, since: int | None) -> Iterator[ConversationInfo]:
    after: tuple[int, str] | None = None
    while page := source.conversations(owner, limit=_PAGE, after=after):
        yield from page
        after = page[-1].updated, page[-1].id
        if since is not None and after[0] < since:
            return


def _copy(source: Store, target: Store, owner: str, name: str) -> ImportedConversation | None:
    """Copy a conversation and return the outcome, or None if the conversation was deleted in the meantime."""
    try:
        found = read_snapshot(source, owner, name)
        if found is None:
            return None
        if IMPORTING in found.export.meta:
            return ImportedConversation(
                name, "left", why="its import into the source store is incomplete: import it again"
            )
        return _proved(target, owner, found, _taken(target, owner, found))
    except HeadMoved:
        return ImportedConversation(name, "left", why="another process is writing to it")
    except (LongtalkError, ValueError) as problem:
        # A damaged conversation must not stop the others. If a store itself fails, these calls raise.
        source.conversations(owner, limit=1)
        target.conversations(owner, limit=1)
        return ImportedConversation(name, "left", why=str(problem))


def _taken(target: Store, owner: str, found: Snapshot) -> ImportedConversation:
    """Write a conversation to the target store, or only what is missing there, and return the outcome.

    Nothing is removed from the target store.
    """
    there = read_complete(target, owner, found.id)
    if there is None:
        write_new(target, owner, found, new_mark())
        return told(found, "new")
    if holds(there, found, values=True) and _is_as_new(there, found):
        return told(found, "here")
    if not holds(found, there, values=False):
        return ImportedConversation(found.id, "left", why="both copies changed since the last copy: delete one of them")
    if any(head.lease is not None and head.lease.until > now() for head in there.heads):
        return ImportedConversation(found.id, "left", why="a turn is running on it in the target store")
    write_more(target, owner, found, there)
    if found.export.meta != there.export.meta:
        target.describe(owner, found.id, clean(found.export.meta))
    return told(found, "grown")


def _is_as_new(there: Snapshot, found: Snapshot) -> bool:
    """Return True if the copy in the target store is up to date.

    On branches with the same number of entries, turns, newest records and times must be equal.
    """
    return all(
        (mine.turns, shown(mine.records), there.updated[name]) == (path.turns, shown(path.records), found.updated[name])
        for name, path in found.paths.items()
        if len((mine := there.paths[name]).entries) == len(path.entries)
    )


def _proved(target: Store, owner: str, found: Snapshot, done: ImportedConversation) -> ImportedConversation:
    """Verify a copy by reading it back, and return `done`, or the outcome `left` if the copy is not correct."""
    name = found.id
    if done.how in ("new", "grown"):
        made = read_snapshot(target, owner, name)
        if made and made.key() != found.key() and not made.touched and holds(found, made, values=True):
            # The order of records on branches with shared entries can matter: write the conversation again.
            remove(target, owner, made)
            write_new(target, owner, found, new_mark())
            made = read_snapshot(target, owner, name)
        wrong = target.verify(owner, name)
        if wrong or made is None or made.key() != found.key():
            why = "; ".join(wrong) or "what was read back is not what was written"
            return ImportedConversation(name, "left", done.entries, done.branches, why)
    return done

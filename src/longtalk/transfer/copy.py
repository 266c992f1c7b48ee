"""Copy conversations from one store to another without loss, and verify each copy.

Conversations are copied in the order of their last change, oldest first. Each copy is written completely, read back and
compared, and its checksums are verified. Copying again skips unchanged conversations, restarts incomplete copies and
adds new entries. A store in use can therefore be copied in two passes: all conversations while it is busy, then the
changes while it is idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from longtalk._util.checks import PROFILE_ID
from longtalk.errors import InputError, LongtalkError
from longtalk.memory.profile.lines import OwnerRecord, parse_owner_record
from longtalk.stores.base import ConversationInfo, HeadMoved, Store
from longtalk.transcript.transcript import now
from longtalk.transfer.load import BEING_WRITTEN, ImportedConversation, ImportResult, Progress, make_outcome
from longtalk.transfer.owners import Owners, check_owners, list_pairs
from longtalk.transfer.restore import IMPORTING, make_mark, read_complete, remove, remove_mark, write_more, write_new
from longtalk.transfer.snapshot import Snapshot, has_all_data, read_snapshot, select_current_records

_PAGE = 10_000
_BATCH = 1_000
_THREADS = 4


def copy_conversations(
    source: Store,
    target: Store,
    owner: str,
    *,
    ids: Sequence[str] = (),
    since: int | str | None = None,
    owners: Owners = None,
    progress: Progress | None = None,
) -> ImportResult:
    """Copy an owner's conversations to another store, and return the outcome for each; see `Archive.copy_to`."""
    if source is target or repr(source) == repr(target) != "InMemory()":
        raise InputError("The source and target of a copy are the same store. Choose another target.")
    check_owners(owners)
    if owners is not None and (ids or isinstance(since, str)):
        raise InputError("An id names a conversation of one owner: leave out the ids, or copy that owner only.")
    outcomes: list[ImportedConversation] = []
    # Several copies run in parallel, since most of the time is spent waiting for servers.
    with ThreadPoolExecutor(_THREADS) as threads:
        for old, new in list_pairs(source, owner, owners):
            names = _choose_ids(source, old, ids, since)
            for start in range(0, len(names), _BATCH):
                batch = names[start : start + _BATCH]
                copies = threads.map(lambda name, old=old, new=new: _copy_one(source, target, old, new, name), batch)
                for done in copies:
                    outcomes += [] if done is None else [msgspec.structs.replace(done, owner=new)]
                    if progress:
                        progress(len(outcomes))
    return ImportResult(tuple(outcomes))


def _choose_ids(source: Store, owner: str, ids: Sequence[str], since: int | str | None) -> list[str]:
    """Return the ids of the conversations to copy, oldest change first: the given `ids` or, if there are none, all ids.

    With `since`, leave out conversations that have not changed since then.
    """
    if isinstance(since, str):
        since = _find_conversation(source, owner, since).updated
    named = [_find_conversation(source, owner, name) for name in dict.fromkeys(ids)]
    found = named if ids else list(_list_all(source, owner, since))
    return [each.id for each in reversed(found) if since is None or each.updated >= since]


def _find_conversation(source: Store, owner: str, name: str) -> ConversationInfo:
    found = source.info(owner, name)
    if found is None:
        raise InputError(f"Conversation {name!r} not found in the source store: check the id and the owner.")
    return found


def _list_all(source: Store, owner: str, since: int | None) -> Iterator[ConversationInfo]:
    after: tuple[int, str] | None = None
    while page := source.conversations(owner, limit=_PAGE, after=after):
        yield from page
        after = page[-1].updated, page[-1].id
        if since is not None and after[0] < since:
            return


def _copy_one(source: Store, target: Store, owner: str, new: str, name: str) -> ImportedConversation | None:
    """Copy a conversation and return the outcome, or None if the conversation has been deleted in the source store."""
    try:
        found = read_snapshot(source, owner, name)
        if found is None:
            return None
        if IMPORTING in found.export.meta:
            return ImportedConversation(
                name, "left", why="its import into the source store is not complete; import it there again"
            )
        return _verify_copy(target, new, found, _write_copy(target, new, found))
    except HeadMoved:
        return ImportedConversation(name, "left", why=BEING_WRITTEN)
    except (LongtalkError, ValueError) as problem:
        # A damaged conversation must not stop the others. If a whole store fails, these calls raise an error.
        source.conversations(owner, limit=1)
        target.conversations(new, limit=1)
        return ImportedConversation(name, "left", why=str(problem))


def _write_copy(target: Store, owner: str, found: Snapshot) -> ImportedConversation:
    """Write a conversation, or the part that is missing in the target store, and return the outcome.

    Nothing is removed from the target store.
    """
    there = read_complete(target, owner, found.id)
    if there is None:
        write_new(target, owner, found, make_mark())
        return make_outcome(found, "new", owner)
    if has_all_data(there, found, values=True) and _is_up_to_date(there, found):
        return make_outcome(found, "here", owner)
    if not has_all_data(found, there, values=False):
        why = "the target store has data that the source store lacks; delete the version that you don't need"
        return ImportedConversation(found.id, "left", why=why)
    if found.id == PROFILE_ID and not _parse_profile(found).has_changes_of(_parse_profile(there)):
        why = "the profile in the target store has changes that the source store lacks; make them in both stores"
        return ImportedConversation(found.id, "left", why=why)
    if any(head.lease is not None and head.lease.until > now() for head in there.heads):
        return ImportedConversation(found.id, "left", why="a turn is running in the target store; try again later")
    write_more(target, owner, found, there)
    if found.export.meta != there.export.meta:
        target.describe(owner, found.id, remove_mark(found.export.meta))
    return make_outcome(found, "grown", owner)


def _parse_profile(found: Snapshot) -> OwnerRecord:
    return parse_owner_record(found.export.meta)


def _is_up_to_date(there: Snapshot, found: Snapshot) -> bool:
    """Return True if the copy in the target store is up to date.

    Branches with the same number of entries in both stores must have the same turns, newest records and time of last
    change. A branch with more entries in the target store counts as up to date.
    """
    return all(
        (copied.turns, select_current_records(copied.records), there.updated[name])
        == (path.turns, select_current_records(path.records), found.updated[name])
        for name, path in found.paths.items()
        if len((copied := there.paths[name]).entries) == len(path.entries)
    )


def _verify_copy(target: Store, owner: str, found: Snapshot, done: ImportedConversation) -> ImportedConversation:
    """Read a copy back and compare it. Return the outcome `done`, or `left` if the copy differs or is damaged."""
    name = found.id
    if done.how in ("new", "grown"):
        copied = read_snapshot(target, owner, name)
        if (
            copied
            and copied.comparison_key() != found.comparison_key()
            and not copied.touched
            and has_all_data(found, copied, values=True, on_any_branch=True)
        ):
            # If branches share entries, the order of records may differ, and a new fork may have inherited records that
            # its original does not see: write the whole conversation again.
            remove(target, owner, copied)
            write_new(target, owner, found, make_mark())
            copied = read_snapshot(target, owner, name)
        damage = target.verify(owner, name)
        if damage or copied is None or copied.comparison_key() != found.comparison_key():
            why = "; ".join(damage) or "the copy differs from the original"
            return ImportedConversation(name, "left", done.entries, done.branches, why)
    return done

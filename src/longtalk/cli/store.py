"""Open the store that `--store` names, and find conversations and branches in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from longtalk._sync.archive.archive import Archive
from longtalk._util.suggest import suggest
from longtalk.archive.tree import find_last_branch
from longtalk.cli.entry_ids import is_entry_id
from longtalk.cli.output import escape_line, print_note
from longtalk.errors import InputError
from longtalk.stores import get_default_path, hide_credentials, open_default_store, open_store
from longtalk.stores.base import ConversationInfo, Store
from longtalk.stores.in_memory import InMemory
from longtalk.stores.jsonl.errors import FileError

_MOST_SUGGESTED = 1_000
"""How many conversations, most recently changed first, are compared with a mistyped id."""

_MOST_NAMED = 5
"""How many conversations an error names whose ids begin as the given one."""


@contextmanager
def open_archive(
    path: str | None, owner: str, *, make: bool = False, whole: bool = False, in_memory: bool = False
) -> Iterator[Archive]:
    """Open the archive of an owner in a store, and close the store at the end.

    With `make`, a store that does not exist is created; with `in_memory`, an empty store takes its place. Damaged files
    are reported on standard error; with `whole`, for a command that reads the whole store, they also make the command
    exit with status 1.
    """
    store: Store = InMemory() if in_memory else _open(path, make=make)
    try:
        archive = Archive(store, owner=owner)
        try:
            yield archive
        finally:
            for problem in list_damaged(archive):
                print_note(f"longtalk: {problem}")
        if whole and list_damaged(archive):
            raise SystemExit(1)
    finally:
        store.close()


def _open(path: str | None, *, make: bool) -> Store:
    return open_default_store() if path is None else open_store(path, make=make)


def store_exists(path: str | None) -> bool:
    """Return False if the store is a file or folder that does not exist yet."""
    name = get_default_path() if path is None else path
    return "://" in name or os.path.exists(name)


def list_damaged(archive: Archive) -> list[FileError]:
    """Return an error for each damaged file that was skipped while listing or searching."""
    found: list[FileError] = getattr(archive.store, "list_damaged_files", list)()
    return found


def name_owner(archive: Archive) -> str:
    """Return " of the owner …" for use in a message; empty if there is no owner."""
    return f" of owner {archive.owner!r}" if archive.owner else ""


def find_conversation(archive: Archive, id: str) -> ConversationInfo:  # noqa: A002
    """Return the summary data of a conversation; raise `InputError` if it is not found."""
    found = archive.store.info(archive.owner, id)
    if found is None:
        hint = suggest(id, (each.id for each in archive.conversations(limit=_MOST_SUGGESTED)))
        hint = _suggest_by_title(archive, id) or hint
        if is_entry_id(id):
            hint = " This looks like the id of an entry: name its conversation."
        raise InputError(
            f"Conversation {id!r}{name_owner(archive)} not found.{hint} `longtalk list` shows all conversations."
        )
    return found


def suggest_id(archive: Archive, id: str) -> str:  # noqa: A002
    """Return " Did you mean …?" with a conversation whose id is close to a new one, and not just the next number."""
    known = [each.id for each in archive.conversations(limit=_MOST_SUGGESTED)]
    # Two letters in the wrong order change a short name more than the comparison allows.
    swapped = [each for each in known if each != id and sorted(each) == sorted(id)]
    close = swapped or get_close_matches(id, known, n=1, cutoff=0.8)
    if not swapped and (named := _suggest_by_title(archive, id)):
        return named
    if not close or re.sub(r"\d+", "", close[0]) == re.sub(r"\d+", "", id):
        return ""
    return f" Did you mean {close[0]!r}?"


def _suggest_by_title(archive: Archive, title: str) -> str:
    """Return " That is the title of …" if a conversation has a text as its title; else an empty text."""
    for each in archive.conversations(limit=_MOST_SUGGESTED):
        named = each.meta.get("title")
        if isinstance(named, str) and named.casefold() == title.casefold():
            return f" That is the title of {each.id!r}: use this id."
    return ""


def find_or_latest(archive: Archive, id: str | None) -> ConversationInfo:  # noqa: A002
    """Return the summary data of a conversation; if `id` is None, of the most recently changed one."""
    if id is not None:
        return _find_by_beginning(archive, id) or find_conversation(archive, id)
    found = archive.conversations(limit=1)
    if not found:
        kind = "readable conversations" if list_damaged(archive) else "conversations"
        raise InputError(f"This store has no {kind}{name_owner(archive)}: check --store and --owner.")
    return found[0]


def _find_by_beginning(archive: Archive, id: str) -> ConversationInfo | None:  # noqa: A002
    """Return the only conversation whose id begins with `id`, and say which it is. None if there is one called `id`.

    Only commands that change nothing accept a part of an id.
    """
    if not id or archive.store.info(archive.owner, id) is not None:
        return None
    found = [each for each in archive.conversations(limit=_MOST_SUGGESTED) if each.id.startswith(id)]
    if len(found) == 1:
        print_note(f"(This is conversation {escape_line(found[0].id)}.)")
        return found[0]
    if found:
        names = ", ".join(repr(each.id) for each in found[:_MOST_NAMED])
        more = f" and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
        raise InputError(f"No conversation is called {id!r}, and several begin so: {names}{more}.")
    return None


def choose_branch(archive: Archive, summary: ConversationInfo, branch: str | None) -> str:
    """Return `branch`, or if it is None, the branch on which the conversation goes on: the one that changed last.

    Raise `InputError` if the conversation has no branch with this name.
    """
    if branch is None:
        if len(summary.branches) == 1:
            return summary.branches[0]
        return find_last_branch(archive.store.branches(archive.owner, summary.id))
    if branch not in summary.branches:
        names = ", ".join(map(repr, summary.branches))
        raise InputError(f"Conversation {summary.id!r} has no branch {branch!r}. Its branches are {names}.")
    return branch


def describe_location(path: str | None) -> str:
    """Return the location of a store for display: a path, or an address without its password."""
    return get_default_path() if path is None else hide_credentials(path)

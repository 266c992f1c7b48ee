"""Where a command finds the conversations: the store that `--store` names, and what is in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from longtalk._sync.archive import Archive
from longtalk.cli.out import say
from longtalk.errors import InputError
from longtalk.stores import default, default_path, open_store, shown
from longtalk.stores.base import MAIN, Summary
from longtalk.stores.folder import Damaged


@contextmanager
def opened(path: str | None, owner: str, *, make: bool = False, whole: bool = False) -> Iterator[Archive]:
    """What an owner has in a store: a SQLite file, a folder of JSONL files, or a server. One may be made.

    Files that can't be read are told. Where all had to be looked through (`whole`), the status is 1 then.
    """
    store = default() if path is None else open_store(path, make=make)
    try:
        archive = Archive(store, owner=owner)
        try:
            yield archive
        finally:
            for problem in left_out(archive):
                say(f"longtalk: {problem}")
        if whole and left_out(archive):
            raise SystemExit(1)
    finally:
        store.close()


def left_out(archive: Archive) -> list[Damaged]:
    """The files that lists and searches have left out, since they can't be read."""
    found: list[Damaged] = getattr(archive.store, "damaged", list)()
    return found


def whose(archive: Archive) -> str:
    return f" of the owner {archive.owner!r}" if archive.owner else ""


def known(archive: Archive, id: str) -> Summary:  # noqa: A002
    """A conversation that has to be there."""
    found = archive.store.summary(archive.owner, id)
    if found is None:
        raise InputError(f"There is no conversation {id!r}{whose(archive)} here. `longtalk list` shows what there is.")
    return found


def known_or_newest(archive: Archive, id: str | None) -> Summary:  # noqa: A002
    """A conversation that has to be there; without an id, the one changed last."""
    if id is not None:
        return known(archive, id)
    found = archive.conversations(limit=1)
    if not found:
        what = "that can be read" if left_out(archive) else "yet"
        raise InputError(f"There is no conversation{whose(archive)} here {what}.")
    return found[0]


def branch_of(summary: Summary, branch: str | None) -> str:
    """The branch to read: the one that was asked for, or the main one, where there is one."""
    if branch is None:
        return MAIN if MAIN in summary.branches else summary.branches[0]
    if branch not in summary.branches:
        names = ", ".join(map(repr, summary.branches))
        raise InputError(f"The conversation {summary.id!r} has no branch {branch!r}. There are: {names}.")
    return branch


def place(path: str | None) -> str:
    """What a store is called when somebody asks."""
    return default_path() if path is None else shown(path)

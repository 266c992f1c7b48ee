"""Where a command finds the conversations: the store that `--store` names, and what is in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from longtalk._sync.archive import Archive
from longtalk.cli.out import say
from longtalk.errors import InputError
from longtalk.stores import default, default_path
from longtalk.stores.base import MAIN, Store, Summary
from longtalk.stores.folder import Damaged


@contextmanager
def opened(path: str | None, owner: str, *, make: bool = False, whole: bool = False) -> Iterator[Archive]:
    """What an owner has in a store: a SQLite file, or a folder of JSONL files. One that is not there may be made.

    Files that can't be read are told. Where all had to be looked through (`whole`), the status is 1 then.
    """
    store = default() if path is None else _named(path, make=make)
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
    return default_path() if path is None else path


def _named(path: str, *, make: bool) -> Store:
    # A name such as ":memory:" or "file:x" is a file here like any other.
    full = os.path.abspath(path)
    if not path or "\0" in path:
        raise InputError(f"{path!r} is not a path: name a file or a folder with --store.")
    if not make and not os.path.exists(full):
        raise InputError(f"There is no store {path!r}: name another with --store.")
    folder = path.endswith(("/", os.sep)) or os.path.isdir(full)
    try:
        with _private():
            os.makedirs(full if folder else os.path.dirname(full), exist_ok=True)
    except FileExistsError:
        raise InputError(f"{path!r} is a file: without the slash at its end it is a SQLite store.") from None
    except OSError as problem:
        raise InputError(f"Can't make the folder of {path!r}: {problem.strerror}. Name another with --store.") from None
    if folder:
        from longtalk.stores.jsonl import JSONL

        return JSONL(full)
    from longtalk.stores.sqlite import SQLite

    with _private():
        return SQLite(full)


@contextmanager
def _private() -> Iterator[None]:
    """What is made meanwhile is the user's own."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)

"""`longtalk delete` and `longtalk redact`: remove for good, once somebody has said yes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from longtalk._sync.archive import Archive
from longtalk.cli.list import title
from longtalk.cli.out import escaped, number, one_line, put, say, words
from longtalk.cli.store import known, opened
from longtalk.errors import InputError
from longtalk.stores.base import Receipt
from longtalk.stores.folder import Damaged


def delete(*, store: str | None, owner: str, ids: Sequence[str], yes: bool) -> None:
    """Remove conversations; the receipts are printed."""
    with opened(store, owner) as archive:
        ids = list(dict.fromkeys(ids))
        told = [_told(archive, each) for each in ids]
        _confirm("".join(f"{each}\n" for each in told) + "Delete for good?", yes=yes)
        for each in ids:
            put(_receipt(archive.delete(each)))


def redact(*, store: str | None, owner: str, id: str, entry: str, yes: bool) -> None:  # noqa: A002
    """Remove what an entry says."""
    with opened(store, owner) as archive:
        summary = known(archive, id)
        for branch in summary.branches:
            said = next((each for each in archive.history(id, branch=branch) if each.id == entry), None)
            if said is not None:
                break
        else:
            raise InputError(f"There is no entry {entry!r} in the conversation {id!r}. `longtalk show` names them.")
        _confirm(f"{one_line(said.role)}: {one_line(words(said.text, 200))}\nRemove this for good?", yes=yes)
        archive.redact(id, entry)
        put(f"redacted {one_line(entry)} in {one_line(id)}")


def _told(archive: Archive, id: str) -> str:  # noqa: A002
    try:
        summary = known(archive, id)
        return one_line(f"{id}: {number(summary.entries, 'entry', 'entries')}, {title(archive, summary)!r}")
    except Damaged as problem:
        # What can't be read can be removed.
        return one_line(f"{id}: {problem}")


def _receipt(receipt: Receipt) -> str:
    counts = [
        number(receipt.entries, "entry", "entries"),
        number(receipt.turns, "turn"),
        number(receipt.records, "record"),
        number(receipt.branches, "branch", "branches"),
    ]
    return f"deleted {one_line(receipt.conversation)}: {', '.join(counts)}"


def _confirm(question: str, *, yes: bool) -> None:
    """Ask at a terminal; where there is none, only --yes will do."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError("Nobody can be asked here: --yes removes it without a question.")
    import click

    if not click.confirm(escaped(question), err=True):
        say("Nothing was removed.")
        raise SystemExit(1)

"""`longtalk delete` and `longtalk redact`: remove data permanently, after a confirmation."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import msgspec

from longtalk._sync.archive.archive import Archive
from longtalk.cli.entry_ids import LOOKS
from longtalk.cli.list import find_title
from longtalk.cli.output import escape, escape_line, pluralize, print_note, print_result, shorten
from longtalk.cli.store import choose_branch, find_conversation, open_archive
from longtalk.errors import InputError
from longtalk.stores.base import DeletionReceipt
from longtalk.stores.jsonl.errors import FileError


def delete(*, store: str | None, owner: str, ids: Sequence[str], branch: str | None, yes: bool, as_json: bool) -> None:
    """Ask for confirmation, delete conversations or one branch, and print what was deleted."""
    with open_archive(store, owner) as archive:
        ids = list(dict.fromkeys(ids))
        if branch is not None:
            [id] = ids  # noqa: A001
            summary = find_conversation(archive, id)
            choose_branch(archive, summary, branch)
            _confirm(f"{escape_line(f'{id}: branch {branch}')}\nDelete permanently?", yes=yes)
            try:
                receipt = archive.delete_branch(id, branch)
            except InputError as problem:
                raise InputError(_name_commands(str(problem), id, summary.branches, branch)) from None
            text = f"deleted branch {escape_line(branch)} of {escape_line(id)}: {_format_counts(receipt)}"
            print_result({**msgspec.to_builtins(receipt), "branch": branch}, text, as_json=as_json)
            return
        descriptions = [_describe(archive, each) for each in ids]
        _confirm("".join(f"{each}\n" for each in descriptions) + "Delete permanently?", yes=yes)
        for each in ids:
            receipt = archive.delete(each)
            print_result(msgspec.to_builtins(receipt), _format_receipt(receipt), as_json=as_json)


def redact(*, store: str | None, owner: str, id: str, entry: str, yes: bool, as_json: bool) -> None:  # noqa: A002
    """Ask for confirmation, and remove the content of an entry permanently."""
    with open_archive(store, owner) as archive:
        summary = find_conversation(archive, id)
        for branch in summary.branches:
            found = next((each for each in archive.history(id, branch=branch) if each.id == entry), None)
            if found is not None:
                break
        else:
            raise InputError(
                f"Entry {entry!r} not found in conversation {id!r}. {LOOKS}; `longtalk show` prints the ids."
            )
        content = f"{escape_line(found.role)}: {escape_line(shorten(found.text, 200))}"
        _confirm(f"{content}\nRemove this permanently?", yes=yes)
        archive.redact(id, entry)
        text = f"redacted {escape_line(entry)} in {escape_line(id)}"
        print_result({"conversation": id, "entry": entry}, text, as_json=as_json)


def _name_commands(problem: str, id: str, branches: Sequence[str], branch: str) -> str:  # noqa: A002
    """Return an error with the commands that continue another branch."""
    chat = shlex.join(["longtalk", "chat", id])
    switch = " or ".join(f"/branches {each}" for each in branches if each != branch)
    return problem.replace("continue another branch first", f"continue another one first ({chat}, and there {switch})")


def _describe(archive: Archive, id: str) -> str:  # noqa: A002
    try:
        summary = find_conversation(archive, id)
        return escape_line(f"{id}: {pluralize(summary.entries, 'entry', 'entries')}, {find_title(archive, summary)!r}")
    except FileError as problem:
        # A damaged conversation can still be deleted.
        return escape_line(f"{id}: {problem}")


def _format_receipt(receipt: DeletionReceipt) -> str:
    branches = pluralize(receipt.branches, "branch", "branches")
    return f"deleted {escape_line(receipt.conversation)}: {_format_counts(receipt)}, {branches}"


def _format_counts(receipt: DeletionReceipt) -> str:
    counts = (
        pluralize(receipt.entries, "entry", "entries"),
        pluralize(receipt.turns, "turn"),
        pluralize(receipt.records, "record"),
    )
    return ", ".join(counts)


def _confirm(question: str, *, yes: bool) -> None:
    """Unless `yes` is True, ask the user for confirmation, and exit with status 1 if the user declines.

    Raise `InputError` if the user can't be asked because standard input is not a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError("Standard input is not a terminal, so confirmation is not possible. To skip it, use --yes.")
    import click

    if not click.confirm(escape(question), err=True):
        print_note("Nothing was removed.")
        raise SystemExit(1)

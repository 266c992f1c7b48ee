"""`longtalk branches`, `fork`, `rewind` and `rename`: the branches and the title of a stored conversation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from longtalk._sync.archive.archive import Archive
from longtalk._sync.branches.branch import Branch
from longtalk._sync.branches.operations import fork_branch
from longtalk._sync.branches.rewind import rewind_branch
from longtalk.archive.tree import BranchPlace
from longtalk.cli.entry_ids import describe_missing
from longtalk.cli.output import escape_line, format_time, print_json, print_note, print_result, shorten
from longtalk.cli.store import choose_branch, find_conversation, find_or_latest, open_archive
from longtalk.cli.tables import Column, print_table
from longtalk.errors import InputError, NotFound
from longtalk.policies import KeepAll
from longtalk.wires import text_if_readable

_COLUMNS = (
    Column("branch", shortest=16),
    Column("entries", rank=2, is_number=True),
    Column("forked from", rank=3, shortest=11),
    Column("shared", rank=4, is_number=True),
    Column("changed", rank=1),
    Column("begins", shortest=20),
)
_FIRST = 20
"""How many entries after the fork point to search for a message with a text."""


def rename(*, store: str | None, owner: str, id: str, title: str, as_json: bool) -> None:  # noqa: A002
    """Set the title in the metadata of a conversation."""
    if not title.strip():
        raise InputError("The title is empty: write it after the id.")
    with open_archive(store, owner) as archive:
        summary = find_conversation(archive, id)
        archive.set_metadata(id, {**summary.meta, "title": title})
        text = f"{escape_line(id)} is now called {escape_line(title)!r}"
        print_result({"conversation": id, "title": title}, text, as_json=as_json)


def list_branches(*, store: str | None, owner: str, id: str | None, as_json: bool) -> None:  # noqa: A002
    """Print one line for each branch of a conversation, the main branch first."""
    with open_archive(store, owner) as archive:
        found = find_or_latest(archive, id)
        places = [(each, read_beginning(archive, found.id, each)) for each in archive.tree(found.id)]
    rows = []
    for place, begins in places:
        head = place.head
        if as_json:
            print_json(
                {
                    "branch": head.branch,
                    "entries": head.size,
                    "source": place.source,
                    "shared": place.shared,
                    "status": place.status,
                    "created": head.created,
                    "updated": head.updated,
                    "begins": begins,
                }
            )
        else:
            counts = (str(head.size), place.source or "-", str(place.shared))
            rows.append((head.branch, *counts, format_time(head.updated), begins or "-"))
    if not as_json:
        print_table(_COLUMNS, rows)


def read_beginning(archive: Archive, id: str, place: BranchPlace) -> str:  # noqa: A002
    """Return the first words that a branch does not share with the one that it was forked from."""
    stop = min(place.head.size, place.shared + _FIRST)
    entries = archive.store.read(archive.owner, id, place.head.branch, place.shared, stop).entries()
    return next((text for each in entries if (text := shorten(text_if_readable(each), 80))), "")


def fork(
    *,
    store: str | None,
    owner: str,
    id: str | None,  # noqa: A002
    at: str | None,
    name: str | None,
    branch: str | None,
    as_json: bool,
) -> None:
    """Create a branch, and print its name."""
    with open_archive(store, owner) as archive:
        id = find_conversation(archive, id).id if id is not None else find_or_latest(archive, None).id  # noqa: A001
        with _explain_missing(at):
            made = fork_branch(_open_branch(archive, id, branch), at, name=name).branch
    _print_branch(id, made, as_json=as_json)
    if not as_json:
        where = f"longtalk chat {escape_line(id)}"
        print_note(f"The conversation goes on there: {where}. On another branch: {where} -b NAME.")


def rewind(
    *,
    store: str | None,
    owner: str,
    id: str,  # noqa: A002
    to: str,
    branch: str | None,
    as_json: bool,
) -> None:
    """Cut a branch, and print the name of the branch that keeps the rest."""
    with open_archive(store, owner) as archive, _explain_missing(to):
        made = rewind_branch(_open_branch(archive, id, branch), to)
    _print_branch(id, made, as_json=as_json)
    if not as_json:
        print_note(
            f"This branch keeps what was cut off: longtalk show {escape_line(id)} -b {escape_line(made)}. The "
            "conversation goes on after the entry that you named."
        )


def _print_branch(id: str, branch: str, *, as_json: bool) -> None:  # noqa: A002
    print_result({"conversation": id, "branch": branch}, escape_line(branch), as_json=as_json)


def _open_branch(archive: Archive, id: str, branch: str | None) -> Branch:  # noqa: A002
    summary = find_conversation(archive, id)
    return Branch(archive.store, archive.owner, id, choose_branch(archive, summary, branch), KeepAll(), create=False)


@contextmanager
def _explain_missing(entry: str | None) -> Iterator[None]:
    """Say in the words of the command line that a branch has no such entry."""
    try:
        yield
    except NotFound as problem:
        raise NotFound(describe_missing(entry or "") if "entry or turn" in str(problem) else str(problem)) from None

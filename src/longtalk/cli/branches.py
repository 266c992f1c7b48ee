"""`longtalk branches`, `fork`, `rewind` and `rename`: the branches and the title of a stored conversation."""

from __future__ import annotations

from longtalk._sync.archive.archive import Archive
from longtalk._sync.branches.branch import Branch
from longtalk._sync.branches.operations import fork_branch
from longtalk._sync.branches.rewind import rewind_branch
from longtalk.cli.output import escape_line, format_time, print_json, print_note, print_result
from longtalk.cli.store import choose_branch, find_conversation, find_or_latest, open_archive
from longtalk.cli.tables import Column, print_table
from longtalk.errors import InputError, NotFound
from longtalk.policies import KeepAll

_COLUMNS = (
    Column("branch", shortest=16),
    Column("entries", is_number=True),
    Column("forked from", rank=2, shortest=11),
    Column("shared", rank=3, is_number=True),
    Column("changed", rank=1),
)


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
        places = archive.tree(find_or_latest(archive, id).id)
    rows = []
    for place in places:
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
                }
            )
        else:
            counts = (str(head.size), place.source or "-", str(place.shared))
            rows.append((head.branch, *counts, format_time(head.updated)))
    if not as_json:
        print_table(_COLUMNS, rows)


def fork(
    *,
    store: str | None,
    owner: str,
    id: str,  # noqa: A002
    at: str | None,
    name: str | None,
    branch: str | None,
    as_json: bool,
) -> None:
    """Create a branch, and print its name."""
    with open_archive(store, owner) as archive:
        try:
            made = fork_branch(_open_branch(archive, id, branch), at, name=name).branch
        except NotFound as problem:
            raise _explain(problem) from None
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
    with open_archive(store, owner) as archive:
        try:
            made = rewind_branch(_open_branch(archive, id, branch), to)
        except NotFound as problem:
            raise _explain(problem) from None
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


def _explain(problem: NotFound) -> NotFound:
    return NotFound(str(problem).replace("pass an id from `history()`", "`longtalk show` prints the ids"))

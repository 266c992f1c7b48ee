"""`longtalk list`: print the conversations in a store, most recently changed first."""

from __future__ import annotations

from itertools import islice

import msgspec

from longtalk._sync.archive.archive import Archive
from longtalk.cli.filters import Filter
from longtalk.cli.output import format_time, print_json, print_note, shorten
from longtalk.cli.store import open_archive
from longtalk.cli.tables import Column, print_table
from longtalk.stores.base import MAIN, ConversationInfo
from longtalk.wires import text_if_readable

_COLUMNS = (
    Column("id", shortest=16),
    Column("changed", rank=1),
    Column("entries", rank=2, is_number=True),
    Column("title", shortest=20),
)
_FIRST = 20
"""How many entries to search for the first user message."""


def run(*, store: str | None, owner: str, limit: int, wanted: Filter, as_json: bool) -> None:
    """Print one line for each conversation of the owner that matches the filter."""
    with open_archive(store, owner, whole=True) as archive:
        more = False
        rows = []
        found = islice(wanted.select(archive), limit + 1) if limit else wanted.select_all(archive)
        for count, each in enumerate(found, 1):
            if limit and count > limit:
                more = True
            elif as_json:
                print_json({**msgspec.to_builtins(each), "title": find_title(archive, each)})
            else:
                rows.append((each.id, format_time(each.updated), str(each.entries), find_title(archive, each)))
        if not as_json:
            print_table(_COLUMNS, rows)
    if not rows and not as_json:
        print_note("No conversations yet." if wanted.is_empty else "No matching conversations.")
    if more:
        print_note("There are more conversations. To list all, use --limit 0.")


def find_title(archive: Archive, summary: ConversationInfo) -> str:
    """Return the title from the conversation's metadata; if it has none, the beginning of the first user message."""
    title = summary.meta.get("title")
    if isinstance(title, str) and title.strip():
        return shorten(title, 80)
    if not summary.branches:
        return ""
    # The title does not depend on where the conversation goes on.
    branch = MAIN if MAIN in summary.branches else summary.branches[0]
    # If all messages of this branch were taken back, the others have them.
    for name in (branch, *(each for each in summary.branches if each != branch)):
        pack = archive.store.read(archive.owner, summary.id, name, 0, _FIRST)
        text = next((text_if_readable(entry) for entry in pack.entries() if entry.role == "user"), "")
        if text.strip():
            return shorten(text, 80)
    return ""

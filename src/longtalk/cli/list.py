"""`longtalk list`: the conversations in a store, those changed last first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from longtalk._sync.archive import Archive
from longtalk.cli.out import put_json, put_table, say, when, words
from longtalk.cli.store import branch_of, opened
from longtalk.errors import InputError
from longtalk.stores.base import Summary
from longtalk.wires import said

PAGE = 500
_FEW = 20
"""Entries to look through for the first one of a user."""


def run(*, store: str | None, owner: str, limit: int, meta: Sequence[str], as_json: bool) -> None:
    """Print a line for each conversation."""
    wanted = dict(map(_pair, meta))
    with opened(store, owner) as archive:
        more = False
        rows = []
        for count, each in enumerate(every(archive, wanted, limit + 1 if limit else 0), 1):
            if limit and count > limit:
                more = True
            elif as_json:
                put_json(msgspec.to_builtins(each))
            else:
                rows.append((each.id, when(each.updated), str(each.entries), title(archive, each)))
        put_table(rows)
    if not rows and not as_json:
        say("There are no such conversations here." if wanted else "There are no conversations here yet.")
    if more:
        say("There are more: --limit 0 lists all.")


def title(archive: Archive, summary: Summary) -> str:
    """What a conversation is about: its title, or how it begins."""
    named = summary.meta.get("title")
    if isinstance(named, str) and named.strip():
        return words(named, 80)
    if not summary.branches:
        return ""
    pack = archive.store.read(archive.owner, summary.id, branch_of(summary, None), 0, _FEW)
    return words(next((said(entry) for entry in pack.entries() if entry.role == "user"), ""), 80)


def every(archive: Archive, meta: dict[str, Any] | None = None, limit: int = 0) -> Iterator[Summary]:
    """So many conversations, page by page; 0 for all of them."""
    last, left = None, limit
    while page := archive.conversations(limit=min(left, PAGE) if limit else PAGE, after=last, meta=meta):
        yield from page
        last, left = page[-1], left - len(page)
        if limit and not left:
            return


def _pair(text: str) -> tuple[str, Any]:
    """`key=value`, where the value is JSON, or else text."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--meta takes key=value, not {text!r}.")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value

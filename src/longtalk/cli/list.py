"""`longtalk list`: the conversations in a store, those changed last first."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    with opened(store, owner, whole=True) as archive:
        more = False
        rows = []
        for count, each in enumerate(
            archive.conversations(limit=limit + 1, meta=wanted) if limit else archive.every(meta=wanted), 1
        ):
            if limit and count > limit:
                more = True
            elif as_json:
                put_json({**msgspec.to_builtins(each), "title": title(archive, each)})
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


def _pair(text: str) -> tuple[str, Any]:
    """`key=value`, where the value is JSON, or else text."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--meta takes key=value, not {text!r}.")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value

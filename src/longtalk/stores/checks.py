"""Checks for all stores: whether a commit fits its branch, and whether metadata matches a filter."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from longtalk.stores.base import BranchHead, Commit, HeadMoved, PlacedRecord
from longtalk.transcript.pack import Entry

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


def check_commit(head: BranchHead | None, commit: Commit, source: BranchHead | None = None) -> None:
    """Raise `HeadMoved` if a commit expects another revision, and `ValueError` if the commit is otherwise invalid.

    `head` is the head of the commit's branch, or None if the branch is new; `source` is the head of the branch from
    which a new branch forks. The store itself has to compare `Commit.source_entry` with the stored entry.
    """
    if (head.revision if head else 0) != commit.expect:
        raise HeadMoved(head)
    size = head.size if head else 0
    if head is None and commit.source is not None:
        if source is not None and commit.source_entry is not None and commit.source[1] > source.size:
            # The source was truncated after the caller read it.
            raise HeadMoved(source)
        if source is None or not 0 <= commit.source[1] <= source.size:
            name, size = commit.source
            raise ValueError(f"can't fork after {size} entries of branch {name!r}: it doesn't have that many")
        size = commit.source[1]
    if commit.cut is not None and not 0 <= commit.cut <= size:
        raise ValueError(f"can't cut a path of {size} entries to {commit.cut} entries")
    if head is not None and commit.source is not None:
        raise ValueError(f"branch {commit.branch!r} already exists, so the commit can't have a source")
    check_commit_fields(commit)


def check_commit_fields(commit: Commit) -> None:
    """Raise `ValueError` if the fields of a commit contradict each other, regardless of the stored data."""
    for at in (commit.at, *(entry.at for entry in commit.entries)):
        if at < 0:
            raise ValueError(f"the time {at} (ms since 1970) of a commit or entry is out of range: it is negative")
    if commit.entry_meta and any(not 0 <= i < len(commit.entries) for i in commit.entry_meta):
        raise ValueError("entry_meta must have only indexes of the commit's entries")
    if commit.turn is None and (commit.request is not None or commit.manifest):
        raise ValueError("a commit with a request or a manifest needs a turn")


def check_record_positions(records: Sequence[PlacedRecord], size: int) -> None:
    """Raise `ValueError` if a record's position is not on a path of `size` entries."""
    for placed in records:
        if not -1 <= placed.position < size:
            raise ValueError(f"can't attach a record at position {placed.position} of a path with {size} entries")


def check_entry_id(entry: Entry) -> None:
    """Raise `ValueError` unless an entry's id consists of its turn's id, a hyphen and a number."""
    if not entry.id.startswith(f"{entry.turn}-") or not _NUMBER.fullmatch(entry.id, len(entry.turn) + 1):
        raise ValueError(f"entry id {entry.id!r} must be the turn's id {entry.turn!r}, a hyphen and a number")


def check_parents(parent: str | None, entries: Sequence[Entry]) -> None:
    """Raise `ValueError` unless each entry's parent is the entry before it.

    `parent` is the id of the entry before the first of `entries`, or None if no entry precedes it.
    """
    for entry in entries:
        if entry.parent != parent:
            stored = f"has the parent {entry.parent!r}" if entry.parent else "has no parent"
            expected = f"the entry before it is {parent!r}" if parent else "no entry precedes it"
            raise ValueError(f"entry {entry.id!r} {stored}, but {expected}")
        parent = entry.id


def meta_matches(meta: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether metadata contains all keys and values in `wanted`, compared as JSON (so true differs from 1)."""

    def text(value: Any) -> str:
        return json.dumps(value, sort_keys=True)

    return all(key in meta and text(meta[key]) == text(value) for key, value in wanted.items())

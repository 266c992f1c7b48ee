"""How the Redis store applies a commit.

A commit that appends to the end of a branch is one script on the server, in one round trip. Any other commit (a fork, a
cut, a record that other branches see, a turn that is stored later than its entries) needs a *plan* (`planner.py`): the
store reads the data that the commit depends on, computes the changes in this process, and sends a script that applies
them only if the conversation hasn't changed since.

If the reply to a commit is lost, the commit is sent again. Each commit has a random mark, and each branch remembers its
newest marks, so a commit that was already applied is neither applied twice nor reported as failed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from longtalk.stores._rows import to_utf8_json
from longtalk.stores.base import Commit
from longtalk.stores.checks import check_entry_id, check_parents
from longtalk.stores.redis.command import Command
from longtalk.stores.redis.scripts import APPLY, MARK_SIZE
from longtalk.stores.redis.tree import (
    Keys,
    Tree,
    encode,
    encode_entry,
    encode_request,
)
from longtalk.transcript.pack import Entry
from longtalk.transcript.pack_index import MAX_COUNT
from longtalk.transcript.record_kinds import kind_of

MAX_ARGUMENTS = 1000
"""The maximum number of arguments of one command, because Lua limits the number of arguments of a call."""

Run = tuple[int, str, int]
"""A sequence of entries of one turn with consecutive numbers.

The values are the index of its first entry in the commit, the turn's id, and the number of that entry within the turn.
"""


def make_mark() -> bytes:
    """Return new random bytes that identify a commit."""
    return os.urandom(MARK_SIZE)


def parse_number(entry: Entry) -> int:
    """Return the number of an entry within its turn.

    Raises `ValueError` if the entry's id, time or token count is invalid.
    """
    check_entry_id(entry)
    if not 0 <= entry.tokens <= MAX_COUNT or not 0 <= entry.at <= MAX_COUNT:
        raise ValueError(f"the token count or time of entry {entry.id!r} is out of range")
    return int(entry.id[len(entry.turn) + 1 :])


def find_runs(before: str | None, entries: Sequence[Entry]) -> Iterator[Run]:
    """Yield each run that starts among these entries.

    `before` is the id of the entry before them, or None. Entries that continue the run of that entry start no new run.
    """
    expected = None
    if before is not None:
        turn, _, count = before.rpartition("-")
        expected = turn, int(count) + 1
    for i, entry in enumerate(entries):
        number = parse_number(entry)
        if (entry.turn, number) != expected:
            yield i, entry.turn, number
        expected = entry.turn, number + 1


def build_write_arguments(commit: Commit, *, segment: int, mark: bytes, nonce: bytes, gen: bytes) -> list[Any]:
    """Return the arguments with which the script `WRITE` applies a commit.

    `segment` is the last segment of the branch, as far as this process knows. `nonce` and `gen` are described in
    `lists.py`; `nonce` is empty if the conversation hasn't been marked as hot for this commit.
    """
    entries, lease, turn, request = commit.entries, commit.lease, commit.turn, commit.request
    if entries:
        check_parents(entries[0].parent, entries)
    arguments: list[Any] = [
        *(commit.branch, commit.expect, segment, mark, commit.at, "" if commit.cut is None else commit.cut),
        *(nonce, gen, os.urandom(8), b"" if commit.meta is None else to_utf8_json(commit.meta)),
        *((encode(lease.holder), lease.until, lease.token) if lease else ("", 0, "")),
        *((entries[0].parent or "", entries[-1].id) if entries else ("", "")),
        *(len(entries), *[encode_entry(entry, parse_number(entry)) for entry in entries]),
    ]
    runs = list(find_runs(entries[0].parent, entries)) if entries else []
    arguments += [len(runs), *[part for run in runs for part in run]]
    arguments += [1, turn.id, encode(turn), commit.manifest] if turn else [0]
    arguments += [1, request.key, encode_request(request, turn.id, commit.branch)] if request and turn else [0]
    arguments.append(len(commit.records))
    for placed in commit.records:
        kind = kind_of(placed.record.kind)
        flags = [int(each) for each in (kind.newest_only, kind.may_discard_replaced, kind.own_branch_only)]
        arguments += [placed.position, placed.record.kind, encode(placed.record), *flags]
    arguments += [len(commit.obsolete), *map(encode, commit.obsolete)]
    arguments.append(len(commit.entry_meta))
    for i, meta in commit.entry_meta.items():
        arguments += [i, to_utf8_json(meta)]
    return arguments


class Changes:
    """Redis commands that one script runs together, but only if the conversation is still as `tree` describes it."""

    def __init__(self, keys: Keys, tree: Tree) -> None:
        self._keys = list(keys.all)
        self._expected = tree.born, tree.version
        self._arguments: list[Any] = []

    def add(self, name: str, key: bytes, *arguments: Any) -> None:
        """Add a command. Split it into several commands if it has more than `MAX_ARGUMENTS` arguments."""
        if key not in self._keys:
            self._keys.append(key)
        for start in range(0, len(arguments) or 1, MAX_ARGUMENTS):
            some = arguments[start : start + MAX_ARGUMENTS]
            self._arguments += [name, self._keys.index(key) + 1, len(some), *some]

    def to_command(self, branch: str = "") -> Command:
        """Return the call to the script that applies the changes and replies with the head of `branch`.

        The call also increments the conversation's version, unless it deletes the conversation.
        """
        if "DEL" not in self._arguments:
            self.add("HINCRBY", self._keys[0], "version", 1)
        return Command(APPLY, [*self._expected, branch, *self._arguments], self._keys)

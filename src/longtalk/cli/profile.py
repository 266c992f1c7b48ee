"""`longtalk profile`: show and change what all conversations of an owner know about the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from longtalk._sync.archive.archive import Archive
from longtalk._sync.archive.owner_profile import OwnerProfile
from longtalk.cli.output import escape_line, format_time, print_json, print_note, print_result, write_times
from longtalk.cli.store import find_conversation, open_archive, store_exists
from longtalk.cli.tables import Column, print_table
from longtalk.errors import InputError
from longtalk.memory.profile.config import Profile
from longtalk.memory.profile.lines import ProfileLine
from longtalk.policies.base import get_profile, read_rules

_COLUMNS = (
    Column("line"),
    Column("from", rank=1, shortest=8),
    Column("time", rank=2),
    Column("field"),
    Column("text", shortest=30),
)


def list_lines(*, store: str | None, owner: str, as_json: bool) -> None:
    """Print the lines of the profile, oldest first."""
    with open_archive(store, owner) as archive:
        print_lines(archive.profile().lines(), as_json=as_json)


def print_lines(lines: Sequence[ProfileLine], *, as_json: bool) -> None:
    """Print lines of a profile, each with the conversation that it came from."""
    if as_json:
        for line in lines:
            print_json(_describe(line))
    elif lines:
        print_table(_COLUMNS, [_make_row(line) for line in lines])
    else:
        print_note("The profile is empty.")


def add(*, field: str, text: str, as_json: bool, store: str | None, owner: str) -> None:
    """Add a line to a field, and print it."""
    with open_archive(store, owner, make=not store_exists(store)) as archive:
        _print(_open(archive).add(field, text), as_json=as_json)


def edit(*, line: str, text: str, as_json: bool, store: str | None, owner: str) -> None:
    """Replace the text of a line, and print it."""
    with open_archive(store, owner) as archive:
        _print(_find(archive.profile(), line).replace(line, text), as_json=as_json)


def revoke(*, line: str, as_json: bool, store: str | None, owner: str) -> None:
    """Remove a line for good."""
    with open_archive(store, owner) as archive:
        _find(archive.profile(), line).revoke(line)
        print_result({"id": line}, f"revoked {escape_line(line)}", as_json=as_json)


def private(*, id: str, private: bool | None, as_json: bool, store: str | None, owner: str) -> None:  # noqa: A002
    """Print whether a conversation is private, after changing that unless `private` is None."""
    with open_archive(store, owner, make=bool(private) and not store_exists(store)) as archive:
        if not private:
            id = find_conversation(archive, id).id  # noqa: A001
        if private is not None:
            archive.set_private(id, private, create=private)
        found = archive.private(id)
        text = "private" if found else "not private"
        print_result({"conversation": id, "private": found}, text, as_json=as_json)


def _open(archive: Archive) -> OwnerProfile:
    """Return the profile with the fields of the last conversation's policy, or the usual ones if it has none."""
    for info in archive.conversations(limit=1):
        held = archive.settings(info.id)
        policy = held.policy if held is not None else None
        return archive.profile(get_profile(read_rules(policy).keeper) if policy is not None else None)
    return archive.profile(Profile())


def _find(profile: OwnerProfile, line: str) -> OwnerProfile:
    if all(each.id != line for each in profile.lines()):
        raise InputError(f"The profile has no line {line!r}. `longtalk profile list` prints the ids of lines.")
    return profile


def _make_row(line: ProfileLine) -> tuple[str, ...]:
    source = line.sources[0].conversation if line.sources else "app"
    more = f" +{len(line.sources) - 1}" if len(line.sources) > 1 else ""
    return line.id, source + more, format_time(line.at), line.field, line.text


def _describe(line: ProfileLine) -> dict[str, Any]:
    described = msgspec.to_builtins(line)
    return {**described, "sources": [write_times(each) for each in described["sources"]]}


def _print(line: ProfileLine, *, as_json: bool) -> None:
    print_result(_describe(line), f"{line.id}\t{escape_line(line.text)}", as_json=as_json)

"""`longtalk import`: take in what files hold, all of it or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from longtalk.cli.files import read, shown
from longtalk.cli.out import number, one_line, put
from longtalk.cli.store import known, opened
from longtalk.errors import InputError
from longtalk.intake import take_in
from longtalk.portable import Talk
from longtalk.portable_read import read as read_talks


def run(*, store: str | None, owner: str, files: Sequence[str], id: str | None) -> None:  # noqa: A002
    """Take in conversations, and print their ids."""
    # All files are read first: one that can't be read leaves everything as it was.
    taken: list[Talk] = []
    found: dict[str, str] = {}
    for name in files:
        held = talks(name, id)
        twice = next((talk.id for talk in held if talk.id in found), None)
        if twice is not None:
            raise InputError(
                f"{shown(found[twice])} and {shown(name)} both hold a conversation {twice!r}: "
                "take them in one by one, and name one with --id."
            )
        found |= {talk.id: name for talk in held}
        taken += held
    if not taken:
        raise InputError("There is no conversation to take in.")
    with opened(store, owner, make=True) as archive:
        for name in take_in(archive.store, archive.owner, taken):
            put(f"{one_line(name)}\t{number(known(archive, name).entries, 'entry', 'entries')}")


def talks(name: str, id: str | None = None) -> list[Talk]:  # noqa: A002
    """The conversations in a file. One that has no id is called as the file is."""
    title = id or ("import" if name == "-" else Path(name).stem)
    try:
        held = read_talks(read(name), name=title)
    except InputError as problem:
        raise InputError(str(problem).replace(repr(title), shown(name), 1)) from None
    if id is None:
        return held
    if len(held) != 1:
        raise InputError(f"{shown(name)} holds {len(held):,} conversations, and --id names one: leave it out.")
    return [msgspec.structs.replace(held[0], id=id)]

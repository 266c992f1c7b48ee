"""`longtalk import`: take in what files hold, ours all at once, and what other tools keep one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from longtalk.cli.files import read, shown
from longtalk.cli.out import Counting, number, one_line, put, say
from longtalk.cli.store import opened
from longtalk.errors import InputError
from longtalk.imports import contents, named, take_others
from longtalk.imports import opened as opened_others
from longtalk.imports.notes import counted
from longtalk.imports.others import Others
from longtalk.intake import Intake, take_in
from longtalk.portable import Talk
from longtalk.portable_read import read as read_talks


def run(*, store: str | None, owner: str, files: Sequence[str], id: str | None) -> None:  # noqa: A002
    """Take in conversations, and print their ids. What could not come along is told; if something was left, it is 1."""
    # All files are looked at first: one that can't be read leaves everything as it was.
    taken: list[Talk] = []
    others: list[tuple[str, Others]] = []
    found: dict[str, str] = {}
    for name in files:
        source = read(name) if name == "-" else contents(Path(name))
        foreign = _others(name, source)
        if foreign is not None:
            others.append((name, foreign))
            continue
        held = _ours(name, source, id)
        twice = next((talk.id for talk in held if talk.id in found), None)
        if twice is not None:
            raise InputError(
                f"{shown(found[twice])} and {shown(name)} both hold a conversation {twice!r}: "
                "take them in one by one, and name one with --id."
            )
        found |= {talk.id: name for talk in held}
        taken += held
    if not taken and not others:
        raise InputError("There is no conversation to take in.")
    left = False
    with opened(store, owner, make=True) as archive:
        if taken:
            _print(take_in(archive.store, archive.owner, taken))
        for name, foreign in others:
            with Counting(foreign.count, "conversation") as progress:
                done = take_others(archive.store, archive.owner, named(foreign, id), progress=progress)
            _print(done)
            _tell(shown(name), done)
            left = left or bool(done.left)
    if left:
        raise SystemExit(1)


def _print(done: Intake) -> None:
    for each in done.taken:
        if each.how != "left":
            here = "\talready here" if each.how == "here" else "\tgrown" if each.how == "grown" else ""
            put(f"{one_line(each.id)}\t{number(each.entries, 'entry', 'entries')}{here}")


def _tell(name: str, done: Intake) -> None:
    """What became of a file, and what could not come along."""
    fresh = [each for each in done.taken if each.how in ("new", "grown")]
    entries, branches = sum(each.entries for each in fresh), sum(each.branches - 1 for each in fresh)
    beside = f" on {number(branches, 'more branch', 'more branches')}" if branches else ""
    same = done.count("here")
    here = f"; {same:,} {'was' if same == 1 else 'were'} here already" if same else ""
    say(f"{name}: {number(len(fresh), 'conversation')}, {number(entries, 'entry', 'entries')}{beside}{here}")
    for note, times in sorted(done.notes.items()):
        say(f"  {counted(note, times)}")
    for each in done.left:
        say(f"  left: {one_line(each.id)}: {each.why}")


def talks(name: str) -> list[Talk]:
    """The conversations in a file. One that has no id is called as the file is."""
    source = read(name) if name == "-" else contents(Path(name))
    others = _others(name, source)
    return _ours(name, source, None) if others is None else [each.talk for each in others.each() if not each.problem]


def _others(name: str, source: bytes | Path) -> Others | None:
    """A file of another tool."""
    try:
        return opened_others(source)
    except OSError as problem:
        raise InputError(f"Can't read {shown(name)}: {problem.strerror}.") from None
    except InputError as problem:
        raise InputError(f"{shown(name)}: {problem}") from None


def _ours(name: str, source: bytes | Path, id: str | None) -> list[Talk]:  # noqa: A002
    title = id or ("import" if name == "-" else Path(name).stem)
    try:
        held = read_talks(source if isinstance(source, bytes) else read(name), name=title)
    except InputError as problem:
        raise InputError(str(problem).replace(repr(title), shown(name), 1)) from None
    if id is None:
        return held
    if len(held) != 1:
        raise InputError(f"{shown(name)} holds {len(held):,} conversations, and --id names one: leave it out.")
    return [msgspec.structs.replace(held[0], id=id)]

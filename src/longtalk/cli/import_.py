"""`longtalk import`: import files into a store.

Conversations in Longtalk's own formats are imported all together or not at all. Conversations from other tools are
imported one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from longtalk.cli.files import display_name, read_file
from longtalk.cli.output import ProgressCounter, escape_line, pluralize, print_note, print_text
from longtalk.cli.store import open_archive
from longtalk.errors import InputError
from longtalk.transfer.conversation_export import ConversationExport
from longtalk.transfer.importers import import_from_tool, open_tool_file, read_with_id, resolve_source
from longtalk.transfer.importers.notes import format_note
from longtalk.transfer.importers.tool_file import ToolFile
from longtalk.transfer.load import ImportResult, import_exports
from longtalk.transfer.read import read as read_own


def run(*, store: str | None, owner: str, files: Sequence[str], id: str | None) -> None:  # noqa: A002
    """Import files and print the ids of their conversations. Exit with status 1 if a conversation was skipped."""
    # Read all files before writing: if one can't be read, the store stays as it was.
    own: list[ConversationExport] = []
    foreign: list[tuple[str, ToolFile]] = []
    file_of: dict[str, str] = {}
    for name in files:
        source = read_file(name) if name == "-" else resolve_source(Path(name))
        others = _open_foreign(name, source)
        if others is not None:
            foreign.append((name, others))
            continue
        talks = _read_own(name, source, id)
        twice = next((talk.id for talk in talks if talk.id in file_of), None)
        if twice is not None:
            raise InputError(
                f"{display_name(file_of[twice])} and {display_name(name)} both contain a conversation {twice!r}. "
                "Import them one by one, and rename one with --id."
            )
        file_of |= {talk.id: name for talk in talks}
        own += talks
    if not own and not foreign:
        raise InputError("The files contain no conversations.")
    skipped = False
    with open_archive(store, owner, make=True) as archive:
        if own:
            _print_imported(import_exports(archive.store, archive.owner, own))
        for name, others in foreign:
            with ProgressCounter(others.count, "conversation") as progress:
                done = import_from_tool(archive.store, archive.owner, read_with_id(others, id), progress=progress)
            _print_imported(done)
            _print_summary(display_name(name), done)
            skipped = skipped or bool(done.left)
    if skipped:
        raise SystemExit(1)


def _print_imported(done: ImportResult) -> None:
    for each in done.conversations:
        if each.how != "left":
            outcome = "\talready here" if each.how == "here" else "\tgrown" if each.how == "grown" else ""
            print_text(f"{escape_line(each.id)}\t{pluralize(each.entries, 'entry', 'entries')}{outcome}")


def _print_summary(name: str, done: ImportResult) -> None:
    """Print how much was imported from a file, what could not be imported, and which conversations were skipped."""
    fresh = [each for each in done.conversations if each.how in ("new", "grown")]
    entries, branches = sum(each.entries for each in fresh), sum(each.branches - 1 for each in fresh)
    beside = f" on {pluralize(branches, 'more branch', 'more branches')}" if branches else ""
    same = done.count("here")
    here = f"; {same:,} {'was' if same == 1 else 'were'} already here" if same else ""
    counts = f"{pluralize(len(fresh), 'conversation')}, {pluralize(entries, 'entry', 'entries')}"
    print_note(f"{name}: {counts}{beside}{here}")
    for note, times in sorted(done.notes.items()):
        print_note(f"  {format_note(note, times)}")
    for each in done.left:
        print_note(f"  skipped {escape_line(each.id)}: {each.why}")


def read_conversations(name: str) -> list[ConversationExport]:
    """Return the conversations in a file of any supported format.

    A conversation without an id is named after the file.
    """
    source = read_file(name) if name == "-" else resolve_source(Path(name))
    others = _open_foreign(name, source)
    if others is None:
        return _read_own(name, source, None)
    return [each.export for each in others.read() if not each.problem]


def _open_foreign(name: str, source: bytes | Path) -> ToolFile | None:
    """Open a file that another tool wrote. Return None if the file has none of the supported foreign formats."""
    try:
        return open_tool_file(source)
    except OSError as problem:
        raise InputError(f"Can't read {display_name(name)}: {problem.strerror}.") from None
    except InputError as problem:
        raise InputError(f"{display_name(name)}: {problem}") from None


def _read_own(name: str, source: bytes | Path, id: str | None) -> list[ConversationExport]:  # noqa: A002
    title = id or ("import" if name == "-" else Path(name).stem)
    try:
        talks = read_own(source if isinstance(source, bytes) else read_file(name), name=title)
    except InputError as problem:
        raise InputError(str(problem).replace(repr(title), display_name(name), 1)) from None
    if id is None:
        return talks
    if len(talks) != 1:
        raise InputError(f"{display_name(name)} contains {len(talks):,} conversations, but --id can name only one.")
    return [msgspec.structs.replace(talks[0], id=id)]

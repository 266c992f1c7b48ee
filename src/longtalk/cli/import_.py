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
    """Import files, and print a line for each conversation. Exit with status 1 if a conversation was skipped."""
    # Read all files before writing: if one can't be read, the store stays as it was.
    own: list[ConversationExport] = []
    foreign: list[tuple[str, ToolFile]] = []
    file_of: dict[str, str] = {}
    for name in files:
        source = read_file(name) if name == "-" else resolve_source(Path(name))
        foreign_file = _open_foreign(name, source)
        if foreign_file is not None:
            foreign.append((name, foreign_file))
            continue
        exports = _read_own(name, source, id)
        duplicate = next((export.id for export in exports if export.id in file_of), None)
        if duplicate is not None:
            raise InputError(
                f"{display_name(file_of[duplicate])} and {display_name(name)} both contain a conversation "
                f"{duplicate!r}. Import the files one by one, and give one conversation another id with --id."
            )
        file_of |= {export.id: name for export in exports}
        own += exports
    if not own and not foreign:
        raise InputError("The files contain no conversations: check that you named the right files.")
    skipped = False
    with open_archive(store, owner, make=True) as archive:
        if own:
            _print_imported(import_exports(archive.store, archive.owner, own))
        for name, foreign_file in foreign:
            with ProgressCounter(foreign_file.count, "conversation") as progress:
                result = import_from_tool(
                    archive.store, archive.owner, read_with_id(foreign_file, id), progress=progress
                )
            _print_imported(result)
            _print_summary(display_name(name), result)
            skipped = skipped or bool(result.left)
    if skipped:
        raise SystemExit(1)


def _print_imported(result: ImportResult) -> None:
    for each in result.conversations:
        if each.how != "left":
            outcome = {"here": "\talready in the store", "grown": "\tnew entries added"}.get(each.how, "")
            print_text(f"{escape_line(each.id)}\t{pluralize(each.entries, 'entry', 'entries')}{outcome}")


def _print_summary(name: str, result: ImportResult) -> None:
    """Print the numbers of imported conversations and entries, the notes, and the conversations that were skipped."""
    fresh = [each for each in result.conversations if each.how in ("new", "grown")]
    entries, branches = sum(each.entries for each in fresh), sum(each.branches - 1 for each in fresh)
    extra = f" on {pluralize(branches, 'more branch', 'more branches')}" if branches else ""
    same = result.count("here")
    here = f"; {same:,} {'was' if same == 1 else 'were'} already in the store" if same else ""
    counts = f"{pluralize(len(fresh), 'conversation')}, {pluralize(entries, 'entry', 'entries')}"
    print_note(f"{name}: {counts}{extra}{here}")
    for note, times in sorted(result.notes.items()):
        print_note(f"  {format_note(note, times)}")
    for each in result.left:
        print_note(f"  skipped {escape_line(each.id)}: {each.why}")


def read_conversations(name: str) -> list[ConversationExport]:
    """Return the conversations in a file of any supported format.

    A conversation without an id is named after the file.
    """
    source = read_file(name) if name == "-" else resolve_source(Path(name))
    foreign_file = _open_foreign(name, source)
    if foreign_file is None:
        return _read_own(name, source, None)
    return [each.export for each in foreign_file.read() if not each.problem]


def _open_foreign(name: str, source: bytes | Path) -> ToolFile | None:
    """Open a file of another tool. Return None if no supported tool wrote the file."""
    try:
        return open_tool_file(source, name=display_name(name))
    except OSError as problem:
        raise InputError(f"Can't read {display_name(name)}: {problem.strerror}.") from None


def _read_own(name: str, source: bytes | Path, id: str | None) -> list[ConversationExport]:  # noqa: A002
    title = id or ("import" if name == "-" else Path(name).stem)
    try:
        exports = read_own(source if isinstance(source, bytes) else read_file(name), name=title)
    except InputError as problem:
        raise InputError(str(problem).replace(repr(title), display_name(name), 1)) from None
    if id is None:
        return exports
    if len(exports) != 1:
        raise InputError(
            f"{display_name(name)} contains {len(exports):,} conversations, but --id can name only one. Omit --id."
        )
    return [msgspec.structs.replace(exports[0], id=id)]

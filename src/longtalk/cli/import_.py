"""`longtalk import`: import files and databases into a store.

Conversations in Longtalk's own formats are imported all together or not at all. Conversations from other tools are
imported one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from longtalk.cli.files import display_name, read_file
from longtalk.cli.output import ProgressCounter, escape_line, pluralize, print_json, print_note, print_text
from longtalk.cli.store import open_archive, store_exists
from longtalk.errors import InputError
from longtalk.stores import hide_credentials
from longtalk.transfer.conversation_export import ConversationExport
from longtalk.transfer.importers import import_from_tool, open_tool_file, read_with_id, resolve_source
from longtalk.transfer.importers.mapping import TableMapping, read_mapping
from longtalk.transfer.importers.notes import format_note
from longtalk.transfer.importers.server_tables import DatabaseAddress, is_server
from longtalk.transfer.importers.tool_file import ToolFile
from longtalk.transfer.load import ImportResult, import_exports
from longtalk.transfer.owners import Owners, check_owner_choice
from longtalk.transfer.read import read as read_own


def run(
    *,
    store: str | None,
    owner: str,
    files: Sequence[str],
    id: str | None,  # noqa: A002
    mapping: str | None,
    owners: Owners,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import files, and print a line for each conversation. Exit with status 1 if a conversation was skipped."""
    tables = None if mapping is None else read_mapping(Path(mapping))
    # Read all files before writing: if one can't be read, the store stays as it was.
    own: list[ConversationExport] = []
    foreign: list[tuple[str, ToolFile]] = []
    file_of: dict[str, str] = {}
    for name in files:
        source = _resolve(name)
        foreign_file = _open_foreign(name, source, tables)
        check_owner_choice(owner, owners, has_owners=foreign_file is not None and foreign_file.has_owners)
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
    if own and owners is not None:
        raise InputError("Exports of Longtalk name no owners: choose one with --owner.")
    skipped = False
    with open_archive(store, owner, make=True, in_memory=dry_run and not store_exists(store)) as archive:
        if own:
            done = import_exports(archive.store, archive.owner, own, dry_run=dry_run)
            _print_imported(done, owners, as_json=as_json)
        for name, foreign_file in foreign:
            with ProgressCounter(foreign_file.count, "conversation") as progress:
                result = import_from_tool(
                    archive.store,
                    archive.owner,
                    read_with_id(foreign_file, id),
                    owners=owners,
                    dry_run=dry_run,
                    progress=progress,
                )
            _print_imported(result, owners, as_json=as_json)
            _print_summary(describe_source(name), result)
            skipped = skipped or bool(result.left)
    if dry_run:
        print_note("Nothing was written: this was a dry run.")
    if skipped:
        raise SystemExit(1)


def _resolve(name: str) -> bytes | Path | str:
    if is_server(name):
        return DatabaseAddress(name)
    return read_file(name) if name == "-" else resolve_source(Path(name))


def describe_source(name: str) -> str:
    """Return the name of a file or the address of a database, without its password, for a message."""
    return hide_credentials(name) if is_server(name) else display_name(name)


def _print_imported(result: ImportResult, owners: Owners, *, as_json: bool) -> None:
    for each in result.conversations:
        if as_json:
            print_json(msgspec.to_builtins(each))
        elif each.how != "left":
            outcome = {"here": "\talready in the store", "grown": "\tnew entries added"}.get(each.how, "")
            owner = "" if owners is None else f"{escape_line(each.owner) or '-'}\t"
            print_text(f"{owner}{escape_line(each.id)}\t{pluralize(each.entries, 'entry', 'entries')}{outcome}")


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
    source = _resolve(name)
    foreign_file = _open_foreign(name, source)
    if foreign_file is None:
        return _read_own(name, source, None)
    return [each.export for each in foreign_file.read() if not each.problem]


def _open_foreign(name: str, source: bytes | Path | str, mapping: TableMapping | None = None) -> ToolFile | None:
    """Open a file or database of another tool. Return None if no supported tool wrote the file."""
    try:
        return open_tool_file(source, name="" if is_server(name) else display_name(name), mapping=mapping)
    except OSError as problem:
        raise InputError(f"Can't read {display_name(name)}: {problem.strerror}.") from None


def _read_own(name: str, source: bytes | Path | str, id: str | None) -> list[ConversationExport]:  # noqa: A002
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

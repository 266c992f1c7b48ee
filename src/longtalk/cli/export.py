"""`longtalk export`: write conversations as Markdown, JSON or JSONL."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from longtalk._sync.archive.archive import Archive
from longtalk.archive.archive import Format
from longtalk.cli.files import display_name, refuse_existing, write_file
from longtalk.cli.filters import Filter
from longtalk.cli.output import ProgressCounter, escape_line, print_note, print_text
from longtalk.cli.store import choose_branch, find_or_latest, name_owner, open_archive
from longtalk.errors import InputError
from longtalk.stores.base import ConversationInfo
from longtalk.transfer.conversation_export import ConversationExport


def run(
    *,
    store: str | None,
    owner: str,
    id: str | None,  # noqa: A002
    branch: str | None,
    everything: bool,
    format: Format | None,  # noqa: A002
    output: str | None,
    force: bool,
    wanted: Filter,
) -> None:
    """Write one conversation, or with `everything` all conversations of the owner that match."""
    chosen = format or _detect_format(output)
    if branch is not None and chosen != "md":
        raise click.UsageError(f"--branch applies to Markdown only: {chosen} contains all branches.")
    path = None if output is None or output == "-" else Path(output)
    if path is not None and not (everything and chosen == "md"):
        refuse_existing(path, force=force)
    with open_archive(store, owner, whole=everything) as archive:
        if not everything:
            found = find_or_latest(archive, id)
            _export_one(archive, found.id, chosen, choose_branch(archive, found, branch), path)
            if id is None and path is not None:
                print_note(f"Written {escape_line(found.id)} to {display_name(str(path))}.")
        elif chosen != "md":
            _write_output(_export_all(archive, chosen, wanted), path)
        elif path is None:
            raise InputError("Exporting all conversations as Markdown creates a file for each. Name a folder with -o.")
        else:
            if path.suffix == ".md" and not path.is_dir():
                raise InputError(
                    f"All conversations are a file each: name a folder, and not {display_name(str(path))}."
                )
            _export_folder(archive, path, wanted, force=force)


def export_conversation(archive: Archive, id: str, branch: str, output: str | None) -> None:  # noqa: A002
    """Write a conversation to a new file, in the format that its suffix names, or print it as Markdown."""
    path = Path(output) if output else None
    if path is not None and os.path.lexists(path):
        raise InputError(f"{display_name(str(path))} already exists: choose another name.")
    _export_one(archive, id, _detect_format(output), branch, path)


def _export_one(archive: Archive, id: str, chosen: Format, branch: str, path: Path | None) -> None:  # noqa: A002
    _write_output(archive.export(id, chosen, branch=branch).encode("utf-8", "replace"), path)


def _detect_format(output: str | None) -> Format:
    """Return the export format that matches the suffix of a file name; Markdown if there is no match."""
    suffix = Path(output or "").suffix
    if suffix.lower() in (".html", ".htm", ".pdf", ".csv", ".xml", ".yaml"):
        raise InputError(f"There is no export as {suffix}: name a file that ends in .md, .json or .jsonl.")
    return "jsonl" if suffix == ".jsonl" else "json" if suffix == ".json" else "md"


def _export_all(archive: Archive, format: Format, wanted: Filter) -> bytes:  # noqa: A002
    from longtalk.transfer.json_export import to_json, to_jsonl

    found = _list_all(archive, wanted)
    talks: list[ConversationExport] = []
    with ProgressCounter(len(found), "conversation") as progress:
        for each in found:
            talks.append(archive.talk(each.id))
            progress(len(talks))
    return to_json(talks) if format == "json" else to_jsonl(talks)


def _list_all(archive: Archive, wanted: Filter) -> list[ConversationInfo]:
    found = wanted.select_all(archive)
    if not found and not wanted.is_empty:
        raise InputError(f"No conversation{name_owner(archive)} matches, so nothing is exported.")
    if not found:
        raise InputError(f"This store has no conversations{name_owner(archive)} to export: check --store and --owner.")
    return found


def _export_folder(archive: Archive, folder: Path, wanted: Filter, *, force: bool) -> None:
    from longtalk.stores.jsonl.folder import to_file_name

    found = _list_all(archive, wanted)
    paths = [folder / f"{to_file_name(each.id)}.md" for each in found]
    for path in paths:
        refuse_existing(path, force=force)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(f"Can't create the folder {os.fspath(folder)!r}: {problem.strerror}.") from None
    for each, path in zip(found, paths, strict=True):
        text = archive.export(each.id, "md", branch=choose_branch(archive, each, None))
        write_file(path, text.encode("utf-8", "replace"))
        print_note(os.fspath(path))


def _write_output(data: bytes, path: Path | None) -> None:
    if path is not None:
        write_file(path, data)
    elif sys.stdout.isatty():
        print_text(data.decode(), end="")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

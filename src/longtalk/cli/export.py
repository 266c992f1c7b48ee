"""`longtalk export`: conversations as files, to read or to keep."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from longtalk._sync.archive import Archive
from longtalk.archive import Format
from longtalk.cli.files import refuse_existing, write
from longtalk.cli.out import put, say
from longtalk.cli.store import branch_of, known, opened, whose
from longtalk.errors import InputError
from longtalk.stores.base import Summary


def run(
    *,
    store: str | None,
    owner: str,
    id: str | None,  # noqa: A002
    branch: str | None,
    format: Format | None,  # noqa: A002
    output: str | None,
    force: bool,
) -> None:
    """Write a conversation, or all of them if there is no id."""
    chosen = format or _by_name(output)
    if branch is not None and chosen != "md":
        raise click.UsageError(f"--branch is for Markdown: {chosen} has all branches.")
    path = None if output is None or output == "-" else Path(output)
    if path is not None and not (id is None and chosen == "md"):
        refuse_existing(path, force=force)
    with opened(store, owner, whole=id is None) as archive:
        if id is not None:
            summary = known(archive, id)
            _deliver(archive.export(id, chosen, branch=branch_of(summary, branch)).encode("utf-8", "replace"), path)
        elif chosen != "md":
            _deliver(_document(archive, chosen), path)
        elif path is None:
            raise InputError("All conversations as Markdown are a folder of files: name it with -o FOLDER.")
        else:
            _folder(archive, path, force=force)


def _by_name(output: str | None) -> Format:
    """As the name of the file ends."""
    suffix = Path(output or "").suffix
    return "jsonl" if suffix == ".jsonl" else "json" if suffix == ".json" else "md"


def _document(archive: Archive, format: Format) -> bytes:  # noqa: A002
    from longtalk.portable import to_json, to_jsonl

    talks = [archive.talk(each.id) for each in _all(archive)]
    return to_json(talks) if format == "json" else to_jsonl(talks)


def _all(archive: Archive) -> list[Summary]:
    found = archive.every()
    if not found:
        raise InputError(f"There are no conversations{whose(archive)} here to export.")
    return found


def _folder(archive: Archive, folder: Path, *, force: bool) -> None:
    from longtalk.stores.folder import name_of

    found = _all(archive)
    paths = [folder / f"{name_of(each.id)}.md" for each in found]
    for path in paths:
        refuse_existing(path, force=force)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(f"Can't make the folder {os.fspath(folder)!r}: {problem.strerror}.") from None
    for each, path in zip(found, paths, strict=True):
        write(path, archive.export(each.id, "md", branch=branch_of(each, None)).encode("utf-8", "replace"))
        say(os.fspath(path))


def _deliver(data: bytes, path: Path | None) -> None:
    if path is not None:
        write(path, data)
    elif sys.stdout.isatty():
        put(data.decode(), end="")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

"""`longtalk backup`: copy a store while programs use it. `longtalk migrate`: bring a store to the newest version."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from longtalk._util.private_files import make_private_folder
from longtalk.cli.output import print_note, print_result
from longtalk.errors import CorruptStore, InputError
from longtalk.service.settings import load_settings
from longtalk.service.storage.factory import FILE, open_storage
from longtalk.stores import get_default_path, hide_credentials, open_store
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.sqlite.store import SQLite

_LOCK = ".lock"
_TOOLS = {
    "postgres": "pg_dump, or a base backup with archived WAL",
    "redis": "BGSAVE, and a copy of its RDB file, or of the append-only files",
}


def back_up(*, to: str, as_json: bool, settings: str | None, store: str | None) -> None:
    """Copy the store to a new file or folder, whatever programs do with it meanwhile."""
    name = _find_name(settings, store)
    target = Path(to)
    for kind, tool in _TOOLS.items():
        if name.startswith(kind):
            raise InputError(
                f"Only files can be copied, and {hide_credentials(name)} is a server: use its own tool ({tool})."
            )
    if target.exists():
        raise InputError(f"{to!r} exists already: choose another name for the backup.")
    opened = open_store(name, make=False)
    try:
        if isinstance(opened, SQLite):
            _copy_database(Path(opened._file.path), target)
        elif isinstance(opened, JSONL):
            _copy_folder(opened._folder, target)
    finally:
        opened.close()
    print_result({"store": name, "backup": to}, f"Copied {name} to {to}.", as_json=as_json, show=print_note)


def migrate(*, as_json: bool, settings: str | None, store: str | None) -> None:
    """Bring the store and the tables of the service to the version of this program."""
    name = _find_name(settings, store)
    # Opening migrates, under a lock.
    opened = open_store(name)
    try:
        open_storage(opened).close()
        # Redis is first asked when something is read.
        opened.info("", "health")
    finally:
        opened.close()
    shown = hide_credentials(name)
    print_result({"store": shown}, f"{shown} is up to date.", as_json=as_json, show=print_note)


def _find_name(settings: str | None, store: str | None) -> str:
    """Return the path or the address of the service's store."""
    return load_settings(Path(settings) if settings else None, store=store).store or get_default_path()


def _copy_database(source: Path, target: Path) -> None:
    """Copy a SQLite file with SQLite's online backup, which copies one moment of it, and check the copy."""
    import apsw

    new = target.with_name(target.name + ".part")
    new.unlink(missing_ok=True)
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    copied, original = apsw.Connection(str(new)), apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        original.set_busy_timeout(30_000)
        with copied.backup("main", original, "main") as backup:
            while not backup.done:
                backup.step(-1)
        # A copy that is one file, not one with a log beside it.
        copied.pragma("journal_mode", "delete")
        problem = copied.pragma("quick_check")
    finally:
        original.close()
        copied.close()
    if problem != "ok":
        new.unlink()
        raise CorruptStore(f"The copy of {source} is damaged ({problem}): check the original with `longtalk doctor`.")
    new.replace(target)


def _copy_folder(source: Path, target: Path) -> None:
    """Copy the files of a JSONL store. Each conversation is copied as it is at one moment."""
    make_private_folder(target)
    # A lock file says how long its conversation is at least, so it is copied before the conversation.
    files = sorted((path for path in source.rglob("*") if path.is_file()), key=lambda path: path.suffix != _LOCK)
    for path in files:
        copy = target / path.relative_to(source)
        make_private_folder(copy.parent)
        if path.name == FILE:
            _copy_database(path, copy)
        elif not path.name.startswith(FILE):
            shutil.copy2(path, copy)

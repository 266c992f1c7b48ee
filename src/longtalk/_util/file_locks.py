"""Locks between processes on files, and changes of small files under such a lock."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from longtalk._util.private_files import make_private_folder, open_or_create_private

if sys.platform == "win32":
    import msvcrt

    def lock_file(file: int) -> None:
        """Wait until no other process or thread has a lock on an open file, and lock it until it is closed."""
        # A byte that is locked can't be read. Lock one that is not part of the content.
        os.lseek(file, 1 << 30, os.SEEK_SET)
        while True:
            # The call fails if it has waited for ten seconds: try again.
            with suppress(OSError):
                msvcrt.locking(file, msvcrt.LK_LOCK, 1)
                return

else:
    import fcntl

    def lock_file(file: int) -> None:
        """Wait until no other process or thread has a lock on an open file, and lock it until it is closed."""
        fcntl.flock(file, fcntl.LOCK_EX)


def change_file(path: Path, change: Callable[[], str], *, mode: int) -> None:
    """Write what `change` returns to a file, whole or not at all, while no other process or thread changes it.

    `change` reads the file itself. A new file gets the permissions `mode`; of those of an old one, it keeps the ones
    that are in `mode`. Missing folders are created, for the user alone. The lock file stays beside the file.
    """
    path = Path(os.path.realpath(path))
    make_private_folder(path.parent)
    with open_or_create_private(path.with_name(f".{path.name}.lock")) as lock:
        lock_file(lock.fileno())
        text = change()
        new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if path.exists():
                os.chmod(new, path.stat().st_mode & mode)
            new.replace(path)
        finally:
            with suppress(OSError):
                new.unlink()

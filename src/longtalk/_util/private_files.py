"""Create files and folders that only the user can access. Existing ones keep their permissions."""

from __future__ import annotations

import io
import os
import stat
import threading
from contextlib import suppress
from pathlib import Path

_creation = threading.Lock()
_NON_BLOCKING: int = getattr(os, "O_NONBLOCK", 0)


class NotRegular(OSError):
    """Raised if a path does not name a regular file but, for example, a folder or a pipe."""


def open_private(path: str | os.PathLike[str], mode: str) -> io.FileIO:
    """Open a regular file without buffering. If this creates the file, only the user can access it.

    `mode` is "rb", "rb+", "ab" or "xb". Raises `NotRegular` for a folder, a pipe or a device; opening a pipe could
    otherwise block the caller.
    """
    return open(path, mode, buffering=0, opener=_open_regular)  # type: ignore[return-value]


def open_or_create_private(path: str | os.PathLike[str]) -> io.FileIO:
    """Open a regular file to read and write it, like `open_private`. If it doesn't exist, create it."""
    return open(path, "rb+", buffering=0, opener=lambda path, flags: _open_regular(path, flags | os.O_CREAT))


def _open_regular(path: str, flags: int) -> int:
    file = os.open(path, flags | _NON_BLOCKING, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotRegular(None, "it is not a regular file", path)
    return file


def create_private(path: str | os.PathLike[str]) -> None:
    """Create an empty file that only the user can access, unless the path exists.

    Any error, such as a missing folder, is left to the program that opens the file.
    """
    # An existing file isn't opened: closing it would release SQLite's locks. For the same reason, no other thread may
    # use a new file before it is closed.
    with _creation, suppress(OSError):
        open_private(path, "xb").close()


def make_private_folder(path: str | os.PathLike[str]) -> None:
    """Create a folder and its missing parents, accessible only to the user."""
    folder = Path(path)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)

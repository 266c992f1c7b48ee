"""Files that commands read, and write: whole, or not at all."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from longtalk.errors import BadState, InputError

if TYPE_CHECKING:
    from longtalk.transcript import Transcript


def read(name: str) -> bytes:
    """The content of a file; of standard input for `-`."""
    try:
        if name == "-":
            return sys.stdin.buffer.read()
        with open(name, "rb") as file:
            return file.read()
    except OSError as problem:
        raise InputError(f"Can't read {shown(name)}: {problem.strerror}.") from None


def shown(name: str) -> str:
    import click

    return "(standard input)" if name == "-" else click.format_filename(name)


def transcript(name: str, state: bytes) -> Transcript:
    """What a state holds, however long it is: the file is the user's own."""
    from longtalk.state import decode
    from longtalk.wires import NAMES

    try:
        return decode(state, wires=NAMES, max_bytes=2**40)
    except BadState as problem:
        raise InputError(f"{name}: {problem}") from None


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise `InputError` if something would be overwritten."""
    if not force and os.path.lexists(path):
        raise InputError(f"{shown(str(path))} is there already: --force overwrites it.")


def write(path: Path, data: bytes) -> None:
    """Make or replace a file, so that there is all of it or what was there before. A link to a file stays one."""
    path = Path(os.path.realpath(path))
    beside = path.parent / f".{path.name[:60]}.{os.getpid()}.new"
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            os.chmod(beside, path.stat().st_mode & 0o777)
        beside.replace(path)
    except OSError as problem:
        raise InputError(f"Can't write {shown(str(path))}: {problem.strerror}.") from None
    finally:
        with suppress(OSError):
            beside.unlink()

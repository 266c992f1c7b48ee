"""Read and write the files named on the command line. A file is written completely or not at all."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from longtalk.errors import BadState, InputError

if TYPE_CHECKING:
    from longtalk.transcript.transcript import Transcript


def read_file(name: str) -> bytes:
    """Return the content of a file, or of standard input if the name is `-`."""
    try:
        if name == "-":
            return sys.stdin.buffer.read()
        with open(name, "rb") as file:
            return file.read()
    except OSError as problem:
        raise InputError(f"Can't read {display_name(name)}: {problem.strerror}.") from None


def display_name(name: str) -> str:
    """Return the name of a file for a message; `-` is shown as standard input."""
    import click

    return "(standard input)" if name == "-" else click.format_filename(name)


def decode_state(name: str, state: bytes) -> Transcript:
    """Decode the state in a file, of any size since the file is the user's own. `name` appears in errors."""
    from longtalk.state.codec import decode
    from longtalk.wires import NAMES

    try:
        return decode(state, wires=NAMES, max_bytes=2**40)
    except BadState as problem:
        raise InputError(f"{name}: {problem}") from None


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise `InputError` if the path exists, unless `force` allows overwriting it."""
    if not force and os.path.lexists(path):
        raise InputError(f"{display_name(str(path))} already exists. To overwrite it, use --force.")


def write_file(path: Path, data: bytes) -> None:
    """Create or replace a file atomically. If the path is a symbolic link, the file that it points to is replaced."""
    path = Path(os.path.realpath(path))
    temporary = path.parent / f".{path.name[:60]}.{os.getpid()}.new"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            os.chmod(temporary, path.stat().st_mode & 0o777)
        temporary.replace(path)
    except OSError as problem:
        raise InputError(f"Can't write {display_name(str(path))}: {problem.strerror}.") from None
    finally:
        with suppress(OSError):
            temporary.unlink()

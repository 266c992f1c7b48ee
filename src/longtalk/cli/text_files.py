"""The text files that `longtalk ask -f` names: one file, all that match a pattern, or those of a folder."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from longtalk.cli.files import display_name
from longtalk.cli.output import pluralize, print_note
from longtalk.errors import InputError

_MOST_BYTES = 1_000_000
"""How much text the files of folders and patterns may have together. More would fill the window of any model."""
_PEEK = 8_192
_SKIPPED = ("__pycache__", "node_modules")
"""Folders whose files are made by programs. Hidden files and folders are skipped, too."""


class TextFile(NamedTuple):
    """A file and the name under which its text is sent."""

    path: str
    name: str


def find_text_files(given: Sequence[str]) -> list[TextFile]:
    """Return the files that names, patterns and folders stand for, each once, and print what was found in the last two.

    Raise `InputError` if a pattern or folder has no text, or if all of them have more than can be sent.
    """
    found: dict[str, TextFile] = {}
    total = 0
    for each in given:
        is_folder = os.path.isdir(each)
        if not is_folder and (os.path.lexists(each) or not glob.has_magic(each)):
            found.setdefault(os.path.realpath(each), TextFile(each, os.path.basename(each)))
            continue
        count = size = others = 0
        base = os.path.normpath(each) if is_folder else _find_folder(each)
        for path in _walk(each) if is_folder else _match(each):
            text_size = _measure_text(path)
            if text_size is None:
                others += 1
                continue
            count, size, total = count + 1, size + text_size, total + text_size
            if total > _MOST_BYTES:
                raise InputError(
                    f"The files of {display_name(each)} are too long: folders and patterns may have "
                    f"{_MOST_BYTES:,} bytes of text together. Name fewer, such as -f '{_suggest_pattern(each)}'."
                )
            # The name says nothing of where the user's folders are.
            name = os.path.join(os.path.basename(base) if is_folder else "", os.path.relpath(path, base))
            found.setdefault(os.path.realpath(path), TextFile(path, os.path.normpath(name)))
        left_out = f"; {pluralize(others, 'other file')} left out, without text" if others else ""
        if not count:
            what = "The folder has" if is_folder else "The pattern matches"
            raise InputError(f"{what} no text file: {display_name(each)}{left_out}. Hidden files don't count.")
        print_note(f"({display_name(each)}: {pluralize(count, 'file')} with {pluralize(size, 'byte')}{left_out}.)")
    return list(found.values())


def _match(pattern: str) -> Iterator[str]:
    return (each for each in sorted(glob.glob(pattern, recursive=True)) if os.path.isfile(each))


def _find_folder(pattern: str) -> str:
    """Return the folder in which the files of an absolute pattern are; for another one, the current folder."""
    return os.path.dirname(pattern[: glob.escape(pattern).find("[")]) if os.path.isabs(pattern) else os.curdir


def _walk(folder: str) -> Iterator[str]:
    """Yield the files of a folder and the folders in it, in order of their names."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each[0] != "." and each not in _SKIPPED)
        paths = (os.path.join(place, each) for each in sorted(files) if each[0] != ".")
        # Reading a pipe would wait for a writer.
        yield from filter(os.path.isfile, paths)


def _measure_text(path: str) -> int | None:
    """Return the size of a text file; None for another one, or one that can't be read."""
    with suppress(OSError, UnicodeDecodeError), open(path, "rb") as file:
        start = file.read(_PEEK)
        if b"\0" in start:
            return None
        size = os.fstat(file.fileno()).st_size
        # What is too long anyway is not read whole.
        if size <= _MOST_BYTES:
            (start + file.read()).decode()
        return size
    return None


def _suggest_pattern(given: str) -> str:
    """Return a pattern that matches fewer files."""
    if os.path.isdir(given):
        return os.path.join(given, "*.md")
    return given.replace("**/", "") if "**/" in given else given.replace("*", "a*", 1)

"""Conversations from where people have them: data exports of ChatGPT and Claude, and what other tools keep in SQLite.

What a file is, is told from what it holds. `opened` knows those of others, `portable_read` those of ours. Nothing of
another tool is needed to read what it has written, and nothing in a file is ever run.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from longtalk import _json
from longtalk.errors import InputError
from longtalk.imports import chatgpt, claude
from longtalk.imports.notes import note
from longtalk.imports.others import Others
from longtalk.imports.tree import NOTHING
from longtalk.imports.zips import unpacked
from longtalk.intake import Found, Intake, Progress, take_each, take_in
from longtalk.portable import Talk
from longtalk.portable_read import read
from longtalk.stores.base import Store

Source: TypeAlias = "bytes | str | os.PathLike[str]"
"""What a file holds, as it is or as text; or its path."""
_SQLITE, _ZIP = b"SQLite format 3\0", b"PK\x03\x04"
_MARK = b"\xef\xbb\xbf"
_TOOLS = (chatgpt, claude)
_HOLLOW = note("conversations hold no message", "conversation holds no message")
_OTHER = "what is here says something else"
_APART = (
    f"{_OTHER}: there may be another conversation of this id, perhaps of another tool, or it was changed there. "
    "To keep both, take it in for another owner (--owner)"
)


def taken_from(
    source: Source,
    store: Store,
    owner: str,
    *,
    id: str | None = None,  # noqa: A002
    progress: Progress | None = None,
) -> Intake:
    """See `Archive.take`."""
    held = contents(source)
    name = id or (held.stem if isinstance(held, Path) else "import")
    try:
        others = opened(held)
        ours = renamed(read(loaded(held), name=name), id) if others is None else []
    except OSError as problem:
        shown = held.name if isinstance(held, Path) else name
        raise InputError(f"Can't read {shown!r}: {problem.strerror}.") from None
    if others is None:
        return take_in(store, owner, ours)
    return take_others(store, owner, named(others, id), progress=progress)


def take_others(store: Store, owner: str, found: Iterable[Found], *, progress: Progress | None = None) -> Intake:
    """Take in the conversations of another tool. Those without a message are only told."""
    hollow: list[Found] = []

    def whole() -> Iterator[Found]:
        for each in found:
            if each.problem == NOTHING:
                hollow.append(each)
            else:
                yield each

    def more(count: int) -> None:
        if progress:
            progress(count + len(hollow))

    done = take_each(store, owner, whole(), progress=more)
    notes = Counter(done.notes)
    for each in hollow:
        notes.update({**each.notes, _HOLLOW: 1})
    taken = [msgspec.structs.replace(each, why=_APART) if each.why == _OTHER else each for each in done.taken]
    return Intake(tuple(taken), dict(notes))


def named(others: Others, id: str | None) -> Iterator[Found]:  # noqa: A002
    """The conversations in a file; one may be called otherwise."""
    if id is None:
        return others.each()
    if others.count != 1:
        raise InputError(f"This holds {others.count:,} conversations, and an id names one: leave it out.")
    return (msgspec.structs.replace(each, talk=msgspec.structs.replace(each.talk, id=id)) for each in others.each())


def renamed(talks: list[Talk], id: str | None) -> list[Talk]:  # noqa: A002
    one = len(talks) == 1 and id is not None
    return [msgspec.structs.replace(talks[0], id=id)] if one else talks


def contents(source: object) -> bytes | Path:
    """The content of a file as bytes, or its path."""
    if isinstance(source, str):
        return source.encode("utf-8", "surrogatepass")
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if isinstance(source, os.PathLike):
        path = os.fsdecode(source)
        if "\0" in path:
            raise InputError(f"{path!r} is no path: it has a NUL in it.")
        return Path(path)
    raise InputError(f"What is taken in is the content of a file or its path, not {type(source).__name__}.")


def loaded(source: bytes | Path) -> bytes:
    return source if isinstance(source, bytes) else source.read_bytes()


def opened(source: bytes | Path) -> Others | None:
    """A file of another tool; None when it is none that is known here. Raises `OSError` when it can't be read."""
    if isinstance(source, Path) and source.is_dir():
        inside = min((each.name for each in source.glob("conversations*.json")), default="")
        raise InputError(f"This is a folder: name {f'its {inside}' if inside else 'a file in it'}.")
    begins = _beginning(source)
    if begins == _SQLITE:
        from longtalk.imports.databases import opened_database

        return opened_database(source)
    if begins[:4] == _ZIP:
        return _zipped(source)
    # Only what may be one is looked at more closely: others read it too.
    data = loaded(source)
    try:
        return _listed([data]) if b'"mapping"' in data or b'"chat_messages"' in data else None
    except ValueError:
        return None


def _beginning(source: bytes | Path) -> bytes:
    if isinstance(source, bytes):
        return source[:16]
    with source.open("rb") as file:
        return file.read(16)


def _zipped(source: bytes | Path) -> Others:
    """An archive with `conversations.json`, or with numbered parts of it."""
    parts = unpacked(source)
    try:
        found = _listed(parts) if parts else None
    except ValueError as problem:
        raise InputError(f"The conversations.json in the archive can't be read: {problem}.") from None
    if found is None:
        raise InputError("The archive holds no conversations.json of ChatGPT or Claude.")
    return found


def _listed(documents: Iterable[bytes]) -> Others | None:
    """Conversations from JSON documents that are lists of them, or one. None when they are no such conversations.

    Raises `ValueError` for what is no JSON.
    """
    items: list[bytes] = []
    for data in documents:
        text = data.removeprefix(_MARK).strip()
        if text[:1] not in (b"[", b"{"):
            raise ValueError("it is neither a list nor an object")
        items += _json.items(text) if text[:1] == b"[" else [text]
    first = _json.fields(items[0]) if items and items[0][:1] == b"{" else {}
    tool = next((tool for tool in _TOOLS if tool.is_one(first)), None)
    if tool is None:
        return None
    return Others(tool.TOOL, len(items), lambda: (tool.read(item, number) for number, item in enumerate(items, 1)))

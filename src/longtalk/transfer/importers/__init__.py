"""Import conversations that other tools have exported or stored.

The importers read the data exports of ChatGPT and Claude, and the SQLite files of llm, LangGraph and the OpenAI Agents
SDK. The format of a file is detected from its content. `opened` recognizes the files of other tools; all other files
are passed to `transfer.read`, which knows Longtalk's own formats. Reading does not require the other tools to be
installed, and never runs code from a file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import InputError
from longtalk.stores.base import Store
from longtalk.transfer.conversation_export import ConversationExport
from longtalk.transfer.importers import chatgpt, claude
from longtalk.transfer.importers.notes import note
from longtalk.transfer.importers.others import ToolFile
from longtalk.transfer.importers.tree import NOTHING
from longtalk.transfer.importers.zips import unpack
from longtalk.transfer.load import ImportResult, ParsedConversation, Progress, import_each, import_exports
from longtalk.transfer.read import read

Source: TypeAlias = "bytes | str | os.PathLike[str]"
"""The content of a file as bytes or text, or its path."""
_SQLITE, _ZIP = b"SQLite format 3\0", b"PK\x03\x04"
_MARK = b"\xef\xbb\xbf"
_TOOLS = (chatgpt, claude)
_HOLLOW = note("conversations hold no message", "conversation holds no message")
_OTHER = "what is here says something else"
_APART = (
    f"{_OTHER}: there may be another conversation of this id, perhaps of another tool, or it was changed there. "
    "To keep both, take it in for another owner (--owner)"
)


def import_source(
    source: Source,
    store: Store,
    owner: str,
    *,
    id: str | None = None,  # noqa: A002
    progress: Progress | None = None,
) -> ImportResult:
    """Import the conversations in a file, and return the outcome for each; see `Archive.import_conversations`."""
    held = contents(source)
    name = id or (held.stem if isinstance(held, Path) else "import")
    try:
        others = opened(held)
        ours = renamed(read(loaded(held), name=name), id) if others is None else []
    except OSError as problem:
        shown = held.name if isinstance(held, Path) else name
        raise InputError(f"Can't read {shown!r}: {problem.strerror}.") from None
    if others is None:
        return import_exports(store, owner, ours)
    return import_from_tool(store, owner, named(others, id), progress=progress)


def import_from_tool(
    store: Store, owner: str, found: Iterable[ParsedConversation], *, progress: Progress | None = None
) -> ImportResult:
    """Import conversations of another tool, and return the outcome for each.

    Conversations without messages are not imported; a note in the result says how many there were.
    """
    hollow: list[ParsedConversation] = []

    def whole() -> Iterator[ParsedConversation]:
        for each in found:
            if each.problem == NOTHING:
                hollow.append(each)
            else:
                yield each

    def more(count: int) -> None:
        if progress:
            progress(count + len(hollow))

    done = import_each(store, owner, whole(), progress=more)
    notes = Counter(done.notes)
    for each in hollow:
        notes.update({**each.notes, _HOLLOW: 1})
    taken = [msgspec.structs.replace(each, why=_APART) if each.why == _OTHER else each for each in done.conversations]
    return ImportResult(tuple(taken), dict(notes))


def named(others: ToolFile, id: str | None) -> Iterator[ParsedConversation]:  # noqa: A002
    """Return the conversations in a file, with `id` as the id of the conversation if it is not None.

    Raises `InputError` if `id` is given and the file does not have exactly one conversation.
    """
    if id is None:
        return others.each()
    if others.count != 1:
        raise InputError(f"This holds {others.count:,} conversations, and an id names one: leave it out.")
    return (msgspec.structs.replace(each, export=msgspec.structs.replace(each.export, id=id)) for each in others.each())


def renamed(exports: list[ConversationExport], id: str | None) -> list[ConversationExport]:  # noqa: A002
    """Return the conversations, with `id` as their id if there is only one and `id` is not None."""
    one = len(exports) == 1 and id is not None
    return [msgspec.structs.replace(exports[0], id=id)] if one else exports


def contents(source: object) -> bytes | Path:
    """Return the content of a source as bytes, or its path; raise `InputError` if it is neither content nor a path."""
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
    """Return the content of a source as bytes, reading the file if the source is a path."""
    return source if isinstance(source, bytes) else source.read_bytes()


def opened(source: bytes | Path) -> ToolFile | None:
    """Return the conversations in a file of another tool, or None if no known tool wrote the file.

    Raises `OSError` if the file can't be read.
    """
    if isinstance(source, Path) and source.is_dir():
        inside = min((each.name for each in source.glob("conversations*.json")), default="")
        raise InputError(f"This is a folder: name {f'its {inside}' if inside else 'a file in it'}.")
    begins = _beginning(source)
    if begins == _SQLITE:
        from longtalk.transfer.importers.databases import open_database

        return open_database(source)
    if begins[:4] == _ZIP:
        return _zipped(source)
    # Parse the file only if it may be such an export, since `transfer.read` parses every other file itself.
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


def _zipped(source: bytes | Path) -> ToolFile:
    """Return the conversations in a zip archive that holds `conversations.json` or its numbered parts.

    Raises `InputError` if the archive holds no export of ChatGPT or Claude.
    """
    parts = unpack(source)
    try:
        found = _listed(parts) if parts else None
    except ValueError as problem:
        raise InputError(f"The conversations.json in the archive can't be read: {problem}.") from None
    if found is None:
        raise InputError("The archive holds no conversations.json of ChatGPT or Claude.")
    return found


def _listed(documents: Iterable[bytes]) -> ToolFile | None:
    """Return the conversations in JSON documents, each a list or a single object; None if no known tool wrote them.

    Raises `ValueError` if a document is not JSON.
    """
    items: list[bytes] = []
    for data in documents:
        text = data.removeprefix(_MARK).strip()
        if text[:1] not in (b"[", b"{"):
            raise ValueError("it is neither a list nor an object")
        items += json_bytes.items(text) if text[:1] == b"[" else [text]
    first = json_bytes.fields(items[0]) if items and items[0][:1] == b"{" else {}
    tool = next((tool for tool in _TOOLS if tool.is_one(first)), None)
    if tool is None:
        return None
    return ToolFile(tool.TOOL, len(items), lambda: (tool.read(item, number) for number, item in enumerate(items, 1)))

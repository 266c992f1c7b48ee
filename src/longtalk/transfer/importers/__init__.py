"""Import conversations that other tools have exported or stored.

The importers read the data exports of ChatGPT and Claude, the SQLite files of llm, LangGraph and the OpenAI Agents SDK,
the PostgreSQL databases of the last two and, with a mapping, an app's own tables. The format is detected from the
content. `open_tool_file` recognizes the files and databases of other tools; all other files are passed to
`transfer.read`, which reads Longtalk's own formats. Reading does not require the other tools to be installed, and never
runs code that a file contains.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import InputError
from longtalk.stores.base import Store
from longtalk.transfer.conversation_export import ConversationExport
from longtalk.transfer.importers import chatgpt, claude
from longtalk.transfer.importers.mapping import TableMapping, read_mapping
from longtalk.transfer.importers.notes import register_note
from longtalk.transfer.importers.server_tables import DatabaseAddress as DatabaseAddress
from longtalk.transfer.importers.server_tables import is_server
from longtalk.transfer.importers.tool_file import ToolFile
from longtalk.transfer.importers.tree import NO_MESSAGES
from longtalk.transfer.importers.zips import unpack
from longtalk.transfer.limits import Budget
from longtalk.transfer.load import OTHER_OWNERS, ImportResult, ParsedConversation, Progress, import_each, import_exports
from longtalk.transfer.owners import Owners, check_owner_choice, check_owners
from longtalk.transfer.read import read

Source: TypeAlias = "bytes | str | os.PathLike[str]"
"""The content of a file as bytes or text, its path, or a `DatabaseAddress`."""
_SQLITE, _ZIP = b"SQLite format 3\0", b"PK\x03\x04"
_BOM = b"\xef\xbb\xbf"
_TOOLS = (chatgpt, claude)
_EMPTY_CONVERSATIONS = register_note(
    "conversations without messages were skipped", "conversation without messages was skipped"
)
register_note(OTHER_OWNERS, "conversation of another owner was not imported")


def import_source(
    source: Source,
    store: Store,
    owner: str,
    *,
    id: str | None = None,  # noqa: A002
    mapping: TableMapping | Mapping[str, Any] | Path | None = None,
    owners: Owners = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportResult:
    """Import the conversations in a file of any supported format; see `Archive.import_conversations`."""
    check_owners(owners)
    tables = None if mapping is None else read_mapping(mapping)
    content = resolve_source(source)
    name = id or _choose_id(content)
    label = content.name if isinstance(content, Path) else name
    try:
        file = open_tool_file(content, name=repr(content.name) if isinstance(content, Path) else "", mapping=tables)
        ours = set_single_id(read(read_bytes(content), name=name), id) if file is None else []
    except OSError as problem:
        raise InputError(f"Can't read {label!r}: {problem.strerror}.") from None
    if file is None:
        check_owner_choice(owner, owners, has_owners=False)
        return import_exports(store, owner, ours, dry_run=dry_run)
    check_owner_choice(owner, owners, has_owners=file.has_owners)
    return import_from_tool(store, owner, read_with_id(file, id), owners=owners, dry_run=dry_run, progress=progress)


def _choose_id(content: bytes | Path | DatabaseAddress) -> str:
    """Return the id for a conversation that has none: the file's name, or one that is the same for the same content."""
    if isinstance(content, Path):
        return content.stem
    return f"import-{hashlib.sha256(content).hexdigest()[:12]}" if isinstance(content, bytes) else "import"


def import_from_tool(
    store: Store,
    owner: str,
    found: Iterable[ParsedConversation],
    *,
    owners: Owners = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportResult:
    """Import conversations of another tool one at a time, and return the outcome for each.

    Conversations without messages are not listed; a note in the result says how many there were.
    """
    empty: list[ParsedConversation] = []

    def skip_empty() -> Iterator[ParsedConversation]:
        for each in found:
            if each.problem == NO_MESSAGES:
                empty.append(each)
            else:
                yield each

    def report_progress(count: int) -> None:
        if progress:
            progress(count + len(empty))

    done = import_each(store, owner, skip_empty(), owners=owners, dry_run=dry_run, progress=report_progress)
    notes = Counter(done.notes)
    for each in empty:
        notes.update({**each.notes, _EMPTY_CONVERSATIONS: 1})
    return ImportResult(done.conversations, dict(notes))


def read_with_id(file: ToolFile, id: str | None) -> Iterator[ParsedConversation]:  # noqa: A002
    """Return the conversations in a file. If `id` is not None, it replaces the id of the only conversation.

    Raises `InputError` if `id` is given and the file does not contain exactly one conversation.
    """
    if id is None:
        return file.read()
    if file.count != 1:
        raise InputError(f"The file contains {file.count:,} conversations, but an id can name only one. Omit the id.")
    return (msgspec.structs.replace(each, export=msgspec.structs.replace(each.export, id=id)) for each in file.read())


def set_single_id(exports: list[ConversationExport], id: str | None) -> list[ConversationExport]:  # noqa: A002
    """Return the conversations. If there is only one and `id` is not None, that conversation gets this id."""
    if len(exports) != 1 or id is None:
        return exports
    return [msgspec.structs.replace(exports[0], id=id)]


def resolve_source(source: object) -> bytes | Path | DatabaseAddress:
    """Return content as bytes, a path as `Path`, and the address of a database as it is.

    Raises `InputError` for anything else.
    """
    if isinstance(source, DatabaseAddress):
        return DatabaseAddress(source.strip())
    if is_server(source):
        raise InputError(
            "This text is the address of a database, not the content of a file. To import from the database, pass "
            "DatabaseAddress(…) from longtalk.transfer.importers."
        )
    if isinstance(source, str):
        return source.encode("utf-8", "surrogatepass")
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if isinstance(source, os.PathLike):
        path = os.fsdecode(source)
        if "\0" in path:
            raise InputError(f"{path!r} is not a valid path: it contains a NUL character.")
        return Path(path)
    raise InputError(f"Pass the content of a file (bytes or str) or its path (Path), not {type(source).__name__}.")


def read_bytes(source: bytes | Path | str) -> bytes:
    """Return the content of a source as bytes, reading the file if the source is a path."""
    return (
        source.read_bytes()
        if isinstance(source, Path)
        else bytes(source, "utf-8")
        if isinstance(source, str)
        else source
    )


def open_tool_file(
    source: bytes | Path | str, *, name: str = "", mapping: TableMapping | None = None
) -> ToolFile | None:
    """Open a file or database of another tool. Return None if no supported tool wrote the file.

    With `mapping`, open the tables of an app that it describes. `name` is put before the message of each `InputError`.
    Raises `OSError` if the file can't be read.
    """
    with _naming(name):
        file = _open(source) if mapping is None else _open_tables(source, mapping)
    return file and msgspec.structs.replace(file, read=lambda: _read_naming(file, name))


def _read_naming(file: ToolFile, name: str) -> Iterator[ParsedConversation]:
    with _naming(name):
        try:
            yield from file.read()
        except OSError as problem:
            raise InputError(f"The file can't be read: {problem.strerror}.") from None


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put the name of a file before the message of any `InputError` that the block raises."""
    try:
        yield
    except InputError as problem:
        raise InputError(f"{name}: {problem}" if name else str(problem)) from None


def _open_tables(source: bytes | Path | str, mapping: TableMapping) -> ToolFile:
    if isinstance(source, str):
        from longtalk.transfer.importers.servers import open_app_server

        return open_app_server(source, mapping)
    if _read_beginning(source) != _SQLITE:
        raise InputError("A mapping describes the tables of a database, but this is not a SQLite file.")
    from longtalk.transfer.importers.databases import open_app_database

    return open_app_database(source, mapping)


def _open(source: bytes | Path | str) -> ToolFile | None:
    if isinstance(source, str):
        from longtalk.transfer.importers.servers import open_server

        return open_server(source)
    if isinstance(source, Path) and source.is_dir():
        name = min((each.name for each in source.glob("conversations*.json")), default="")
        raise InputError(f"This is a folder. Import {f'{name} in it' if name else 'a file in it'} instead.")
    begins = _read_beginning(source)
    if begins == _SQLITE:
        from longtalk.transfer.importers.databases import open_database

        return open_database(source)
    if begins[:4] == _ZIP:
        return _open_zip(source)
    # Parse the file only if it may be an export of ChatGPT or Claude: `transfer.read` parses other files itself.
    data = read_bytes(source)
    try:
        return _parse_documents([data]) if b'"mapping"' in data or b'"chat_messages"' in data else None
    except ValueError:
        return None


def _read_beginning(source: bytes | Path) -> bytes:
    if isinstance(source, bytes):
        return source[:16]
    with source.open("rb") as file:
        return file.read(16)


def _open_zip(source: bytes | Path) -> ToolFile:
    """Open a zip archive that contains `conversations.json` or its numbered parts.

    Raises `InputError` if the archive contains no export of ChatGPT or Claude.
    """
    parts = unpack(source)
    try:
        found = _parse_documents(parts) if parts else None
    except ValueError as problem:
        raise InputError(f"Can't read conversations.json in the .zip file: {problem}.") from None
    if found is None:
        raise InputError(
            "The archive contains no conversations.json of ChatGPT or Claude: pass the .zip file of a data export."
        )
    return found


def _parse_documents(documents: Iterable[bytes]) -> ToolFile | None:
    """Open JSON documents with one conversation or a list of them; return None if no supported tool wrote them.

    Raises `ValueError` if a document is not a JSON list or object.
    """
    items: list[bytes] = []
    for data in documents:
        text = data.removeprefix(_BOM).strip()
        if text[:1] not in (b"[", b"{"):
            raise ValueError("the file is neither a JSON list nor a JSON object")
        items += json_bytes.items(text) if text[:1] == b"[" else [text]
    first = json_bytes.fields(items[0]) if items and items[0][:1] == b"{" else {}
    tool = next((tool for tool in _TOOLS if tool.matches(first)), None)
    if tool is None:
        return None

    def read_each() -> Iterator[ParsedConversation]:
        budget = Budget(sum(map(len, items)))
        for number, item in enumerate(items, 1):
            yield tool.read(item, number, budget)

    return ToolFile(tool.TOOL, len(items), read_each)

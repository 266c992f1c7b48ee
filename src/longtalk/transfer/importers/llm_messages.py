"""Build messages from the log of `llm`, for both layouts of its database."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from typing import Any

from longtalk._util import json_bytes
from longtalk.stores.sqlite.database import Database
from longtalk.transcript.pack import Entry
from longtalk.transfer.importers.notes import register_note
from longtalk.transfer.importers.tree import ConvertedMessage
from longtalk.wires.neutral import system
from longtalk.wires.openai_chat.wire import WIRE

TOOL = "llm"
FILES = register_note(
    "attachments are missing: the log has only their names", "attachment is missing: the log has only its name"
)
THOUGHTS = register_note(
    "texts of the model's reasoning were kept as metadata of its answers and are not sent",
    "text of the model's reasoning was kept as metadata of its answer and is not sent",
)


class Attachments:
    """The images, recordings and other files in the log that were attached to messages."""

    def __init__(self, db: Database, notes: Counter[str]) -> None:
        self._db = db
        self._notes = notes

    def read_part(self, name: str) -> Any:
        """Return the attachment with this id as part of a message: an image, or a placeholder for any other file."""
        row = self._db.execute("SELECT type, path, url, content FROM attachments WHERE id = ?", (name,)).fetchone()
        kind, path, url, content = row or ("", name, None, None)
        if str(kind).startswith("image/") and (content or url):
            address = f"data:{kind};base64,{base64.b64encode(content).decode()}" if content else url
            return {"type": "image_url", "image_url": {"url": address}}
        self._notes[FILES] += 1
        return f"[{url or str(path or kind or 'attachment').rpartition('/')[2]}, not in the log]"


def build_call(id: Any, name: Any, arguments: Any) -> dict[str, Any]:  # noqa: A002
    """Return a tool call in OpenAI's chat format."""
    given = arguments if isinstance(arguments, str) else json_bytes.encode(arguments or {}).decode()
    return {"id": str(id), "type": "function", "function": {"name": str(name or "tool"), "arguments": given}}


def build_result(key: str, id: Any, name: Any, output: Any, at: int, is_error: bool) -> ConvertedMessage:  # noqa: A002
    """Return the result of a tool call as a message, marked as an error if `is_error` is True."""
    native = WIRE.write_result(str(id or "-"), str(output or ""), error=is_error)
    entry = Entry(role="tool", wire=WIRE.name, native=native, at=at, mark="error" if is_error else "")
    return ConvertedMessage(key=key, entry=entry, tool=str(name or ""))


def build_message(
    key: str,
    role: str,
    parts: Sequence[Any],
    calls: Sequence[dict[str, Any]],
    at: int,
    *,
    model: str = "",
    thoughts: Sequence[str] = (),
) -> ConvertedMessage | None:
    """Return a message, or None if it has no text, attachments or tool calls."""
    parts = [part for part in parts if part]
    text = "\n".join(part for part in parts if isinstance(part, str))
    if not calls and not text.strip() and all(isinstance(part, str) for part in parts):
        return None
    meta = {"thoughts": list(thoughts)} if thoughts else {}
    if role == "system":
        return ConvertedMessage(key=key, entry=system(text, at=at))
    if role == "assistant":
        message = {"role": role, "content": text or None, **({"tool_calls": list(calls)} if calls else {})}
        native = json_bytes.encode(message)
    else:
        role, native = "user", WIRE.write_user(text if all(isinstance(part, str) for part in parts) else parts)
    return ConvertedMessage(
        key=key, entry=Entry(role=role, wire=WIRE.name, native=native, at=at), model=model, meta=meta
    )

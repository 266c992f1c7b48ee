"""A mapping from the tables of an app to conversations: which table and column means what.

A mapping is a TOML or JSON file, or a dictionary with the same keys. `docs/imports.md` has an example.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from longtalk._util.suggest import suggest
from longtalk.errors import InputError

_ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
}
"""What a role means that the mapping does not name. Case is ignored."""
_UNKNOWN_FIELD = re.compile(r"unknown field `(.*?)`(?: - at `\$\.?(.*?)`)?")


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    table: str
    """The name of the table; on PostgreSQL it may begin with a schema, as in `shop.chats`."""


class ConversationTable(_Table, frozen=True, kw_only=True):
    """The table with a row for each conversation. Except for `table`, all values are names of columns."""

    id: str
    owner: str = ""
    title: str = ""
    created_at: str = ""
    metadata: tuple[str, ...] = ()


class MessageTable(_Table, frozen=True, kw_only=True):
    """The table with a row for each message. Except for `table` and `roles`, all values are names of columns."""

    conversation: str
    role: str
    content: str
    id: str = ""
    created_at: str = ""
    model: str = ""
    tool_calls: str = ""
    tool_call_id: str = ""
    metadata: tuple[str, ...] = ()
    roles: dict[str, Literal["user", "assistant", "system", "tool"]] = {}
    """What the values in the column `role` mean, besides those in `_ROLES`."""


class BriefTable(_Table, frozen=True, kw_only=True):
    """The table with a text about a conversation that becomes its brief, one line of the brief for each line."""

    conversation: str
    text: str
    field: str = "facts"
    """The field of the brief that gets the lines."""


class TableMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tables and columns of an app have its conversations."""

    messages: MessageTable
    conversations: ConversationTable | None = None
    briefs: BriefTable | None = None

    @property
    def has_owners(self) -> bool:
        """True if the mapping names a column of owners."""
        return self.conversations is not None and bool(self.conversations.owner)

    def list_tables(self) -> list[str]:
        """Return the names of the tables that the mapping names."""
        return [part.table for part in (self.conversations, self.messages, self.briefs) if part is not None]

    def find_role(self, name: str) -> str | None:
        """Return the role that a value in the column of roles means, or None if it is unknown."""
        return self.messages.roles.get(name) or _ROLES.get(name.strip().lower())


_KNOWN_KEYS = {
    "messages": MessageTable.__struct_fields__,
    "conversations": ConversationTable.__struct_fields__,
    "briefs": BriefTable.__struct_fields__,
}


def read_mapping(source: TableMapping | Mapping[str, Any] | Path) -> TableMapping:
    """Return the mapping in a file or a dictionary. Raise `InputError` if it is not valid."""
    if isinstance(source, TableMapping):
        return source
    name = repr(source.name) if isinstance(source, Path) else "passed"
    try:
        value = _load(source) if isinstance(source, Path) else dict(source)
        return msgspec.convert(value, TableMapping)
    except OSError as problem:
        raise InputError(f"The mapping {name} can't be read: {problem.strerror}.") from None
    except msgspec.ValidationError as problem:
        raise InputError(f"The mapping {name} is not valid: {_explain(str(problem))}") from None
    except ValueError as problem:
        raise InputError(f"The mapping {name} is neither TOML nor JSON: {problem}.") from None


def _load(path: Path) -> Any:
    data = path.read_bytes()
    return msgspec.json.decode(data) if data.lstrip()[:1] == b"{" else tomllib.loads(data.decode())


def _explain(problem: str) -> str:
    """Return an error of msgspec with the names that are possible instead of an unknown one."""
    found = _UNKNOWN_FIELD.search(problem)
    known = _KNOWN_KEYS.get(found[2] or "", _KNOWN_KEYS) if found else ()
    hint = suggest(found[1], known) if found else ""
    return f"{problem}.{hint}" + (f" Possible: {', '.join(known)}." if known else "")

"""JSON objects that arrive in pieces: texts are joined, and the elements of lists are matched by index or id.

A grammar says how the pieces of each key are put together: as a text (`TEXT`), as a name that an empty string does not
replace (`NAME`), or as a list that grows (`ITEMS`). A dictionary is the grammar of an object, and a list has that of
its elements. For any other key, the last value replaces earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longtalk._util import json_bytes

TEXT = "text"
NAME = "name"
ITEMS = "items"


class PartialObject:
    """A JSON object that is still being assembled, with its members in the order in which they first arrived."""

    def __init__(self, grammar: Mapping[str, Any]) -> None:
        self._grammar = grammar
        self._members: dict[str, Any] = {}

    def merge(self, delta: Mapping[str, bytes]) -> None:
        for key, value in delta.items():
            there = self._members.get(key)
            rule = self._grammar.get(key)
            if value == b"null" or (rule is NAME and value == b'""'):
                self._members.setdefault(key, value)
                continue
            first = value[:1]
            if rule is TEXT and first == b'"':
                self.text(key).bodies.append(value[1:-1])
            elif rule is TEXT and first == b"[":
                text = self.text(key)
                text.close()
                text.parts += json_bytes.items(value)
            elif rule is ITEMS and first == b"[":
                earlier = json_bytes.items(there) if there and there[:1] == b"[" else []
                self._members[key] = b"[" + b",".join([*earlier, *json_bytes.items(value)]) + b"]"
            elif isinstance(rule, dict) and first == b"{":
                if not isinstance(there, PartialObject):
                    there = self._members[key] = PartialObject(rule)
                there.merge(json_bytes.fields(value))
            elif isinstance(rule, list) and first == b"[":
                if not isinstance(there, PartialList):
                    there = self._members[key] = PartialList(rule[0], keep_index=key != "tool_calls")
                there.newest = [there.merge(json_bytes.fields(item)) for item in json_bytes.items(value)]
            else:
                self._members[key] = value

    def text(self, key: str) -> PartialText:
        """Return the partial text under this key. Start an empty one if there is none."""
        there = self._members.get(key)
        if not isinstance(there, PartialText):
            there = self._members[key] = PartialText()
        return there

    def newest(self, key: str) -> list[tuple[int, dict[str, bytes]]]:
        """Return the pieces of a list that were merged last, each with the position of its object."""
        there = self._members.get(key)
        return there.newest if isinstance(there, PartialList) else []

    def members(self) -> dict[str, bytes]:
        return {
            key: member if isinstance(member, bytes) else member.to_json()
            for key, member in self._members.items()
            # A list that stayed null is left out: some servers send that null, and others refuse it.
            if not (member == b"null" and isinstance(self._grammar.get(key), list))
        }

    def member(self, key: str) -> bytes | None:
        """Return the member with this key if it arrived in one piece and is neither null nor empty, else None."""
        return _read_member(self._members, key)

    def to_json(self, *hidden: str) -> bytes:
        return json_bytes.build({key: value for key, value in self.members().items() if key not in hidden})


class PartialText:
    """A text that is still being assembled, from JSON strings, or from content parts if the server streams parts."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.parts: list[bytes] = []

    def close(self) -> None:
        self.parts, self.bodies = self._all_parts(), []

    def _all_parts(self) -> list[bytes]:
        if not any(self.bodies):
            return self.parts
        return [*self.parts, json_bytes.build({"type": b'"text"', "text": self._string()})]

    def _string(self) -> bytes:
        return b'"' + b"".join(self.bodies) + b'"'

    def to_json(self) -> bytes:
        return b"[" + b",".join(self._all_parts()) + b"]" if self.parts else self._string()


class PartialList:
    """A list of objects that are still being assembled.

    Pieces are matched to objects by `index`, or by `id` if the server sends no index.
    """

    def __init__(self, grammar: Mapping[str, Any], *, keep_index: bool) -> None:
        self._grammar = grammar
        self._keep_index = keep_index
        self._items: list[PartialObject] = []
        self.newest: list[tuple[int, dict[str, bytes]]] = []

    def merge(self, delta: dict[str, bytes]) -> tuple[int, dict[str, bytes]]:
        """Merge a piece. Return the position of its object, and the piece."""
        item = self._find(delta)
        if item is None:
            item = PartialObject(self._grammar)
            self._items.append(item)
        item.merge(delta)
        return self._items.index(item), delta

    def _find(self, delta: Mapping[str, bytes]) -> PartialObject | None:
        """Return the object that a piece continues, or None if the piece begins a new object."""
        index, id, type = (_read_member(delta, key) for key in ("index", "id", "type"))  # noqa: A001
        matches = [item for item in self._items if index is None or item.member("index") == index]
        if id is not None:
            matches = [item for item in matches if item.member("id") == id] or matches
        if not matches:
            return None
        last_id, last_type = matches[-1].member("id"), matches[-1].member("type")
        if index is None:
            begins = id != last_id if id else _has_name(delta)
        else:
            # Some servers give every call the index 0: another id together with a name is another call.
            begins = bool(id and last_id and id != last_id) and ("function" not in self._grammar or _has_name(delta))
        return None if begins or (type and last_type and type != last_type) else matches[-1]

    def to_json(self) -> bytes:
        hidden = () if self._keep_index else ("index",)
        return b"[" + b",".join(item.to_json(*hidden) for item in self._items) + b"]"


def _read_member(members: Mapping[str, Any], key: str) -> bytes | None:
    value = members.get(key)
    return value if isinstance(value, bytes) and value not in (b"null", b'""') else None


def _has_name(call: Mapping[str, bytes]) -> bool:
    function = call.get("function", b"")
    return function[:1] == b"{" and _read_member(json_bytes.fields(function), "name") is not None

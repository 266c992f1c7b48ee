"""References to items: a client names an item of a conversation by its id instead of sending it again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from longtalk._util import json_bytes
from longtalk.service.errors import ApiError, not_found, quote
from longtalk.service.openai.items import Item

_KIND = b'"item_reference"'
_NO_KIND = (None, b"null")


def is_reference(item: bytes) -> bool:
    """Return True if an item only names another one. Clients may leave its type out."""
    if b'"id"' not in item or item[:1] != b"{":
        return False
    fields = json_bytes.fields(item)
    return fields.get("type") == _KIND or (fields.get("type") in _NO_KIND and fields.keys() <= {"id", "type"})


def replace_references(
    items: Sequence[bytes], where: str, find: Callable[[Collection[str]], Mapping[str, Item]]
) -> list[bytes]:
    """Return items with those that others refer to in the place of the references.

    `where` names the list in the request, for errors. `find` returns the items of some ids, by their ids. Raises
    `ApiError` if one is not found.
    """
    names = {i: _read_name(item, f"{where}[{i}].id") for i, item in enumerate(items) if is_reference(item)}
    found = find(set(names.values())) if names else {}
    for i, name in names.items():
        if name not in found:
            raise not_found(f"Item {quote(name)}", f"{where}[{i}].id")
    return [_render(found[names[i]]) if i in names else item for i, item in enumerate(items)]


def _read_name(item: bytes, where: str) -> str:
    name = json_bytes.value(item)["id"]
    if not isinstance(name, str):
        raise ApiError(400, "The id of an item must be text.", param=where)
    return name


def _render(item: Item) -> bytes:
    return json_bytes.encode({name: value for name, value in item.items() if name != "id"})

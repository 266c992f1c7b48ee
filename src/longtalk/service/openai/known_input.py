"""Input that a chain has already: clients that keep the conversation send all of it again with each request.

If the last answer in such an input has the id of an item of a chain, and all that comes before the new messages is what
that chain has up to there, the response goes on in the chain, as with `previous_response_id`. Otherwise, each request
would store everything again. The id tells whose answer it is, so equal conversations of two clients stay apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.service.ids import ResponseId, is_chain, place_item_id, split_item_id
from longtalk.service.openai.item_pages import read_items_until
from longtalk.service.openai.item_references import is_reference
from longtalk.service.openai.items import Item, complete_content
from longtalk.stores.base import KeyedTurn, Store

_SAID = ("user", "system", "developer")
_RESULTS = ("function_call_output", "custom_tool_call_output")
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}


class KnownInput(msgspec.Struct, frozen=True):
    """The beginning of an input that a chain has already."""

    response: ResponseId
    """The response that it ends with."""
    keyed: KeyedTurn
    items: int
    """How many items of the input it is."""
    entries: int
    """How many entries of the chain it is."""


def find_known_input(store: Store, owner: str, raw: Sequence[bytes]) -> KnownInput | None:
    """Return what a chain of the owner has of an input; None if it is not the whole of it up to the last answer."""
    items = [json_bytes.value(item) for item in raw]
    last = next((i for i in reversed(range(len(items))) if _is_answer(items[i], raw[i])), None)
    if last is None or not isinstance(name := items[last].get("id"), str):
        return None
    item, chain = split_item_id(name)
    if chain is None or not is_chain(chain):
        return None
    turn = item.partition("_")[2].rpartition("_")[0]
    keyed = next((each for each in store.keyed_turns(owner, chain) if each.turn.id == turn), None)
    if keyed is None or keyed.turn.status == "running":
        return None
    known, entries = read_items_until(store, owner, chain, keyed.branch, turn)
    by_id = {place_item_id(each["id"], chain): each for each in known}
    said = [by_id.get(str(each["id"])) if is_reference(raw[i]) else each for i, each in enumerate(items[: last + 1])]
    if [*filter(None, map(_normalize, said))] != [*filter(None, map(_normalize, known))]:
        return None
    return KnownInput(ResponseId(chain, keyed.request.key), keyed, last + 1, entries)


def _is_answer(item: Mapping[str, Any], raw: bytes) -> bool:
    """Return True for an item that a model has made."""
    if is_reference(raw):
        return not str(item["id"]).startswith("fco_")
    return item.get("role") not in _SAID and item.get("type") not in _RESULTS


def _normalize(item: Item | None) -> Any:
    """Return what an item says, in one form; None for reasoning, which clients may leave out."""
    if item is None:
        return ("unknown",)
    kind = item.get("type") or "message"
    if kind == "reasoning":
        return None
    if kind in _CALLS:
        return (kind, item.get("call_id"), item.get("namespace"), item.get("name"), item.get(_CALLS[kind]))
    if kind in _RESULTS:
        return (kind, item.get("call_id"), item.get("output"))
    if kind != "message":
        return ("unknown", item)
    content = item.get("content")
    if item.get("role") != "assistant":
        return (item.get("role"), complete_content(content))
    parts = content if isinstance(content, list) else [{"text": content}]
    return ("assistant", "".join(str(part.get("text", part.get("refusal"))) for part in parts))

"""Input that a chain has already: clients that keep the conversation send all of it again with each request.

If the last answer in such an input has the id of an item of a chain, and all that comes before the new messages is what
that chain has up to there, the response goes on in the chain, as with `previous_response_id`. Otherwise, each request
would store everything again. The id tells whose answer it is, so equal conversations of two clients stay apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.service.ids import ResponseId, is_chain, place_item_id, split_item_id
from longtalk.service.openai.item_pages import iterate_items_before
from longtalk.service.openai.item_references import is_reference
from longtalk.service.openai.items import Item, complete_content
from longtalk.stores.base import KeyedTurn, Store

_SAID = ("user", "system", "developer")
_RESULTS = ("function_call_output", "custom_tool_call_output")
_STEP = 8
"""How many entries are read first to find the end of a turn."""
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
    stop = _find_end(store, owner, chain, keyed)
    given = ((items[i], raw[i]) for i in reversed(range(last + 1)) if not _is_reasoning(items[i], raw[i]))
    # Both are compared from their end, so that no more of the chain is read than the input can have.
    for known in iterate_items_before(store, owner, chain, keyed.branch, stop):
        if known.get("type") == "reasoning":
            continue
        each = next(given, None)
        if each is None or not _is_same(*each, known, chain):
            return None
    if next(given, None) is not None:
        return None
    return KnownInput(ResponseId(chain, keyed.request.key), keyed, last + 1, stop)


def _find_end(store: Store, owner: str, chain: str, keyed: KeyedTurn) -> int:
    """Return the position after the last entry of a turn."""
    stop, step = keyed.position, _STEP
    while True:
        read = store.read(owner, chain, keyed.branch, stop, stop + step).entries()
        own = sum(1 for _ in takewhile(lambda entry: entry.turn == keyed.turn.id, read))
        stop += own
        if own < step:
            return stop
        step *= 2


def _is_same(item: Item, raw: bytes, known: Item, chain: str) -> bool:
    """Return True if an item of an input says, or names, an item of a chain."""
    if is_reference(raw):
        return bool(item["id"] == place_item_id(known["id"], chain))
    return bool(_normalize(item) == _normalize(known))


def _is_reasoning(item: Mapping[str, Any], raw: bytes) -> bool:
    """Return True for reasoning, which clients may leave out."""
    return str(item["id"]).startswith("rs_") if is_reference(raw) else item.get("type") == "reasoning"


def _is_answer(item: Mapping[str, Any], raw: bytes) -> bool:
    """Return True for an item that a model has made."""
    if is_reference(raw):
        return not str(item["id"]).startswith("fco_")
    return item.get("role") not in _SAID and item.get("type") not in _RESULTS


def _normalize(item: Item) -> Any:
    """Return what an item says, in one form."""
    kind = item.get("type") or "message"
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

"""The routes of the Conversations API. A conversation is one of the store, under the same id."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from longtalk._util import json_bytes
from longtalk._util.concurrency import call_store
from longtalk.branches.append import append_turns
from longtalk.branches.branch import AsyncBranch
from longtalk.errors import InputError
from longtalk.policies import KeepAll
from longtalk.service.access import Caller
from longtalk.service.deletion import delete_conversation, delete_events
from longtalk.service.errors import ApiError
from longtalk.service.http import decode, json_response, read_body
from longtalk.service.idempotency import Idempotency
from longtalk.service.ids import new_conversation_id
from longtalk.service.openai.client_tools import (
    list_call_forms,
    to_function_item,
    write_call_forms,
)
from longtalk.service.openai.create_response import check_metadata
from longtalk.service.openai.fields import ENCRYPTED
from longtalk.service.openai.input_items import check_items
from longtalk.service.openai.item_pages import (
    FoundItem,
    find_item,
    find_items,
    mark_deleted,
    read_include,
    read_page,
    read_page_query,
)
from longtalk.service.openai.item_references import replace_references
from longtalk.service.openai.items import Item, drop_id, place_items, to_items
from longtalk.service.service import Service
from longtalk.stores.base import MAIN, Commit, ConversationInfo, HeadMoved
from longtalk.tokens import counter_for
from longtalk.transcript.transcript import Entry, now
from longtalk.transfer.append import append_messages, read_messages
from longtalk.wires import HTTP_WIRES

PATH = "/v1/conversations"
_MOST_ITEMS = 20
_WIRE = HTTP_WIRES["openai-responses"]


class CreateConversation(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a request for a conversation."""

    items: list[msgspec.Raw] | None = None
    metadata: dict[str, Any] | None = None


class UpdateConversation(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a change."""

    metadata: dict[str, Any] | None


class CreateItems(msgspec.Struct, forbid_unknown_fields=True):
    """Items to add."""

    items: list[msgspec.Raw]


async def create(service: Service, caller: Caller, request: Request) -> Response:
    """Make a conversation, with items if the request has some."""
    body = await read_body(request, service.settings.limits)
    given = decode(body, CreateConversation, service.settings.limits)
    check_metadata(given.metadata)
    items = [bytes(each) for each in given.items or ()]
    _check_items(items)
    items = await _resolve_references(service, caller.owner, items)
    entries = _read_items(items)
    key = request.headers.get("idempotency-key", "")
    seed = f"{len(caller.owner)}:{caller.owner}{key}" if key else ""
    idempotency = Idempotency(service.storage)
    claim = await idempotency.claim(caller.owner, PATH, body, request.headers, new_conversation_id(seed=seed))
    commit = Commit(branch=MAIN, expect=0, at=now(), meta=given.metadata or {})
    try:
        await call_store(service.store, lambda: service.store.write(caller.owner, claim.response, commit))
    except HeadMoved:
        pass
    else:
        if entries:
            await _append(service, caller.owner, claim.response, items, entries)
    await idempotency.mark_delivered(claim, request)
    return json_response(_make_conversation(await service.find_conversation(caller.owner, claim.response)))


async def retrieve(service: Service, caller: Caller, request: Request) -> Response:
    """Return a conversation."""
    return json_response(_make_conversation(await service.find_conversation(caller.owner, request.path_params["id"])))


async def update(service: Service, caller: Caller, request: Request) -> Response:
    """Replace the metadata of a conversation."""
    given = decode(await read_body(request, service.settings.limits), UpdateConversation, service.settings.limits)
    check_metadata(given.metadata)
    name = request.path_params["id"]
    await service.find_conversation(caller.owner, name)
    await service.open_archive(caller.owner).set_metadata(name, given.metadata or {})
    return json_response(_make_conversation(await service.find_conversation(caller.owner, name)))


async def delete(service: Service, caller: Caller, request: Request) -> Response:
    """Delete a conversation and everything that stems from it."""
    name = request.path_params["id"]
    await service.find_conversation(caller.owner, name)
    await delete_conversation(service, caller.owner, name)
    return json_response({"id": name, "object": "conversation.deleted", "deleted": True})


async def list_items(service: Service, caller: Caller, request: Request) -> Response:
    """Return a page of the items of a conversation."""
    query, name = read_page_query(request), request.path_params["id"]
    await service.find_conversation(caller.owner, name)
    return json_response(await call_store(service.store, lambda: read_page(service.store, caller.owner, name, query)))


async def add_items(service: Service, caller: Caller, request: Request) -> Response:
    """Add items to a conversation without a model call."""
    given = decode(await read_body(request, service.settings.limits), CreateItems, service.settings.limits)
    if not given.items:
        message = f"`items` must have 1 to {_MOST_ITEMS} items."
        raise ApiError(400, message, param="items", code="array_below_min_length")
    name = request.path_params["id"]
    items = [bytes(each) for each in given.items]
    _check_items(items)
    await service.find_conversation(caller.owner, name)
    items = await _resolve_references(service, caller.owner, items, name)
    entries = _read_items(items)
    added = await _append(service, caller.owner, name, items, entries)
    new = place_items(to_items(added, {}, calls=list_call_forms(items)), name)
    return json_response(
        {
            "object": "list",
            "data": new,
            "first_id": new[0]["id"] if new else None,
            "last_id": new[-1]["id"] if new else None,
            "has_more": False,
        }
    )


async def retrieve_item(service: Service, caller: Caller, request: Request) -> Response:
    """Return one item."""
    found = await _find_item(service, caller, request, encrypted=ENCRYPTED in read_include(request))
    return json_response(found.item)


async def delete_item(service: Service, caller: Caller, request: Request) -> Response:
    """Erase the content of an item for good, and of everything that may quote it. Return the conversation.

    Items of one answer are one entry, and are erased together. The entry stays in its place, redacted, so that calls
    and results still pair.
    """
    conversation = request.path_params["id"]
    found, store = await _find_item(service, caller, request), service.store
    await service.open_archive(caller.owner).redact(conversation, found.entry.id)
    await call_store(store, lambda: mark_deleted(store, caller.owner, conversation, found))
    await delete_events(service, caller.owner, conversation)
    return json_response(_make_conversation(await service.find_conversation(caller.owner, conversation)))


# Inside


def _make_conversation(info: ConversationInfo) -> Item:
    metadata = {key: value for key, value in info.meta.items() if isinstance(value, str)}
    return {"id": info.id, "object": "conversation", "created_at": info.created // 1000, "metadata": metadata}


def _check_items(items: list[bytes]) -> None:
    if len(items) > _MOST_ITEMS:
        message = f"`items` has {len(items)} items; the limit is {_MOST_ITEMS}."
        raise ApiError(400, message, param="items", code="array_above_max_length")
    check_items(items, "items")


async def _resolve_references(service: Service, owner: str, items: list[bytes], conversation: str = "") -> list[bytes]:
    """Return items with those that they refer to."""
    find = partial(find_items, service.store, owner, conversation=conversation)
    found: list[bytes] = await call_store(service.store, lambda: replace_references(items, "items", find))
    return found


def _read_items(items: list[bytes]) -> list[Entry]:
    """Return the entries of items that a client adds."""
    try:
        return read_messages([to_function_item(drop_id(each)) for each in items], _WIRE) if items else []
    except InputError as problem:
        raise ApiError(400, str(problem), param="items", code="invalid_value") from None


def _name_result(items: Sequence[bytes], problem: str) -> str:
    """Return the path of the result that a problem names, or that of the list."""
    for i, item in enumerate(items):
        fields = json_bytes.fields(item)
        name = json_bytes.text(fields.get("call_id", b"null"))
        if b"_call_output" in fields.get("type", b"") and repr(name) in problem:
            return f"items[{i}].call_id"
    return "items"


async def _append(
    service: Service, owner: str, conversation: str, items: list[bytes], entries: list[Entry]
) -> Sequence[Entry]:
    """Add the entries of some items to a conversation."""
    branch = AsyncBranch(service.store, owner, conversation, MAIN, KeepAll(), create=False)
    counter = counter_for("openai-chat:gpt")
    try:
        added = await append_turns(branch, lambda before: append_messages(before, entries, counter))
    except InputError as problem:
        raise ApiError(400, str(problem), param=_name_result(items, str(problem)), code="invalid_value") from None
    forms = list_call_forms(items)
    if forms:
        meta, store = write_call_forms(forms), service.store
        for entry in {each.turn: each.id for each in reversed(added)}.values():
            await call_store(store, partial(store.describe, owner, conversation, meta, entry=entry))
    return added


async def _find_item(service: Service, caller: Caller, request: Request, *, encrypted: bool = False) -> FoundItem:
    name, item = request.path_params["id"], request.path_params["item"]
    await service.find_conversation(caller.owner, name)
    found: FoundItem = await call_store(
        service.store, lambda: find_item(service.store, caller.owner, name, item, encrypted=encrypted)
    )
    return found


ENDPOINTS = (
    ("POST", PATH, create),
    ("GET", PATH + "/{id}", retrieve),
    ("POST", PATH + "/{id}", update),
    ("DELETE", PATH + "/{id}", delete),
    ("GET", PATH + "/{id}/items", list_items),
    ("POST", PATH + "/{id}/items", add_items),
    ("GET", PATH + "/{id}/items/{item}", retrieve_item),
    ("DELETE", PATH + "/{id}/items/{item}", delete_item),
)

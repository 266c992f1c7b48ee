"""Conversations: list, search, create, change, delete, export, import, count."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from starlette.responses import Response

from longtalk._util import typed_json
from longtalk._util.checks import check_id
from longtalk._util.concurrency import call_store, run_in_thread
from longtalk.archive.stats import Stats
from longtalk.memory.profile.lines import make_private_record
from longtalk.service.deletion import delete_conversation
from longtalk.service.errors import ApiError, quote
from longtalk.service.http import json_response
from longtalk.service.ids import new_conversation_id
from longtalk.service.native.objects import ConversationObject, Meta, Name, Text, clean, to_conversation
from longtalk.service.native.routes import ApiCall, Nothing, Route
from longtalk.stores.base import MAIN, Commit, ConversationInfo, DeletionReceipt, HeadMoved, PlacedRecord
from longtalk.transcript.transcript import now
from longtalk.transfer.load import ImportResult
from longtalk.transfer.sample import import_sample

_MEDIA = {"md": "text/markdown", "json": "application/json", "jsonl": "application/x-ndjson"}
Limit = Annotated[int, msgspec.Meta(ge=1, le=100)]
Title = Annotated[str, msgspec.Meta(max_length=512)]


class ListConversations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page of the list, most recently changed first."""

    limit: Limit = 20
    after: str | None = None
    """`next` of the page before."""
    meta: str | None = None
    """A JSON object: only conversations whose metadata has these values."""


class ConversationPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of conversations."""

    conversations: list[ConversationObject]
    next: str | None
    """What to pass as `after` for the next page; null at the end."""


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Words to look for. Text in double quotes is a phrase; `viol*` finds all words that begin so."""

    q: Text
    limit: Limit = 20
    conversation: Name | None = None
    branch: Name | None = None
    """With `conversation`: only what is on this branch."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that a search has found."""

    conversation: str
    branch: str
    position: int
    entry: str
    role: str
    at: int
    text: str


class SearchResults(msgspec.Struct, frozen=True, kw_only=True):
    """What a search has found, best matches first."""

    hits: list[Hit]


class CreateConversation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A new conversation."""

    id: Name | None = None
    """Its id; by default one is made."""
    title: Title | None = None
    meta: Meta = {}
    private: bool = False
    """Whether it neither adds to the owner's profile nor uses it."""


class ChangeConversation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to change. Fields that are left out stay."""

    title: Title | None = None
    """The new title; an empty or blank one removes it."""
    meta: Meta | None = None
    """The metadata in place of the present one."""


class Export(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The form of an export: a branch as Markdown, or all branches as JSON."""

    format: Literal["json", "jsonl", "md"] = "json"
    branch: Name = MAIN


class Import(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to import a file."""

    id: Name | None = None
    """The id in place of that in the file, if it has one conversation only."""


async def find_info(call: ApiCall[Any, Any]) -> ConversationInfo:
    """Return the conversation that the path of a call names."""
    return await call.service.find_conversation(call.caller.owner, call.path["conversation"])


async def list_conversations(call: ApiCall[ListConversations, Nothing]) -> ConversationPage:
    """List the conversations."""
    query = call.query
    meta = None if query.meta is None else _read_filter(query.meta)
    after = None if query.after is None else _read_cursor(query.after)
    found = await call.archive.conversations(limit=query.limit + 1, after=after, meta=meta)
    page = found[: query.limit]
    more = len(found) > len(page)
    return ConversationPage(
        conversations=[to_conversation(each) for each in page], next=_make_cursor(page[-1]) if more else None
    )


async def search(call: ApiCall[Search, Nothing]) -> SearchResults:
    """Search what was said, in all conversations or in one."""
    query = call.query
    found = await call.archive.search(query.q, limit=query.limit, conversation=query.conversation, branch=query.branch)
    hits = [Hit(**{**msgspec.structs.asdict(each), "text": clean(each.text)}) for each in found]
    return SearchResults(hits=hits)


async def create(call: ApiCall[Nothing, CreateConversation]) -> ConversationObject:
    """Create a conversation."""
    given, owner, store = call.body, call.caller.owner, call.service.store
    name = given.id or new_conversation_id()
    check_id(name)
    title = {"title": given.title.strip()} if given.title and given.title.strip() else {}
    marks = (PlacedRecord(make_private_record(now(), private=True), -1),) if given.private else ()
    commit = Commit(branch=MAIN, expect=0, at=now(), meta={**given.meta, **title}, records=marks)
    try:
        await call_store(store, lambda: store.write(owner, name, commit))
    except HeadMoved:
        raise ApiError(409, f"Conversation {quote(name)} exists already.", param="id", code="already_exists") from None
    return to_conversation(await call_store(store, lambda: store.info(owner, name)))


async def retrieve(call: ApiCall[Nothing, Nothing]) -> ConversationObject:
    """Return a conversation."""
    return to_conversation(await find_info(call))


async def change(call: ApiCall[Nothing, ChangeConversation]) -> ConversationObject:
    """Rename a conversation, or replace its metadata."""
    info, given = await find_info(call), call.body
    meta = dict(info.meta if given.meta is None else given.meta)
    title = info.meta.get("title", "") if given.title is None and "title" not in meta else given.title
    title = title.strip() if isinstance(title, str) else title
    if title is not None:
        meta.pop("title", None)
        meta |= {"title": title} if title else {}
    await call.archive.set_metadata(info.id, meta)
    return to_conversation(await find_info(call))


async def delete(call: ApiCall[Nothing, Nothing]) -> DeletionReceipt:
    """Delete a conversation with everything derived from it, and return a receipt."""
    return await delete_conversation(call.service, call.caller.owner, (await find_info(call)).id)


async def export(call: ApiCall[Export, Nothing]) -> Response:
    """Export a conversation."""
    info, query = await find_info(call), call.query
    text = await call.archive.export(info.id, query.format, branch=query.branch)
    return Response(text.encode("utf-8", "replace"), media_type=_MEDIA[query.format])


async def import_file(call: ApiCall[Import, bytes]) -> Response:
    """Import the conversations of a file: an export of Longtalk, ChatGPT, Claude and others."""
    # The content only: a text could be taken for a path.
    done = await call.archive.import_conversations(call.body, id=call.query.id)
    return json_response(done, 200)


async def add_sample(call: ApiCall[Nothing, Nothing]) -> Response:
    """Import a sample conversation of some months, to look at what the service shows, if it is not there yet.

    It can be changed and deleted like others.
    """
    done = await run_in_thread(lambda: import_sample(call.archive.store, call.archive.owner))
    return json_response(done, 200)


async def count(call: ApiCall[Nothing, Nothing]) -> Stats:
    """Return the figures of a conversation."""
    return await call.archive.stats((await find_info(call)).id)


async def count_all(call: ApiCall[Nothing, Nothing]) -> Stats:
    """Return the figures of all conversations together."""
    return await call.archive.stats()


def _read_filter(text: str) -> Mapping[str, Any]:
    try:
        return typed_json.decode(text.encode("utf-8", "replace"), dict[str, Any])
    except (ValueError, RecursionError):
        raise ApiError(400, "`meta` must be a JSON object.", param="meta", code="invalid_value") from None


def _make_cursor(last: ConversationInfo) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((last.updated, last.id))).decode()


def _read_cursor(text: str) -> tuple[int, str]:
    try:
        updated, name = typed_json.decode(base64.urlsafe_b64decode(text), tuple[int, str])
    except ValueError:
        raise ApiError(400, "`after` must be `next` of the page before.", param="after", code="invalid_value") from None
    if not 0 <= updated < 2**62:
        raise ApiError(400, "`after` must be `next` of the page before.", param="after", code="invalid_value")
    return updated, name


_ONE = "/conversations/{conversation}"
ROUTES: tuple[Route[Any, Any], ...] = (
    Route("GET", "/conversations", list_conversations, query=ListConversations, answer=ConversationPage),
    Route(
        "POST", "/conversations", create, body=CreateConversation, answer=ConversationObject, status=201, errors=(409,)
    ),
    Route("GET", _ONE, retrieve, answer=ConversationObject),
    Route("PATCH", _ONE, change, body=ChangeConversation, answer=ConversationObject),
    Route("DELETE", _ONE, delete, answer=DeletionReceipt),
    Route("GET", _ONE + "/export", export, query=Export, media=tuple(_MEDIA.values())),
    Route("GET", _ONE + "/stats", count, answer=Stats),
    Route("GET", "/search", search, query=Search, answer=SearchResults),
    Route("GET", "/stats", count_all, answer=Stats),
    Route("POST", "/import", import_file, query=Import, body=bytes, answer=ImportResult),
    Route("POST", "/sample", add_sample, answer=ImportResult),
)

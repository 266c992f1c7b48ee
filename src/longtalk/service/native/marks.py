"""What a client adds to a conversation without a turn: notes, pins, exclusions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from longtalk.conversation.conversation import AsyncConversation
from longtalk.service.native.objects import BranchQuery, Meta, Name, Text
from longtalk.service.native.routes import ApiCall, Nothing, Route
from longtalk.service.native.talks import open_talk
from longtalk.stores.base import MAIN


class AddNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something that happened outside the conversation."""

    text: Text
    source: Text = "app"
    meta: Meta = {}
    branch: Name = MAIN


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A note that was added."""

    entry: str


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of entries whose exchanges are always sent, or never."""

    pinned: list[str]
    excluded: list[str]


async def add_note(call: ApiCall[Nothing, AddNote]) -> Note:
    """Add a note, which the model reads with the next message."""
    given = call.body
    talk = await open_talk(call, given.branch)
    return Note(entry=await talk.note(given.text, source=given.source, meta=given.meta or None))


async def list_marks(call: ApiCall[BranchQuery, Nothing]) -> Marks:
    """List the pinned and the excluded entries."""
    return await _read_marks(await open_talk(call, call.query.branch))


async def pin(call: ApiCall[BranchQuery, Nothing]) -> Marks:
    """Keep an entry, with its exchange, in all requests. The id of a turn works too."""
    return await _change(call, AsyncConversation.pin)


async def unpin(call: ApiCall[BranchQuery, Nothing]) -> Marks:
    """Let the policy leave a pinned entry out again."""
    return await _change(call, AsyncConversation.unpin)


async def exclude(call: ApiCall[BranchQuery, Nothing]) -> Marks:
    """Leave an entry, with its exchange, out of all requests. It stays in the history."""
    return await _change(call, AsyncConversation.exclude)


async def include(call: ApiCall[BranchQuery, Nothing]) -> Marks:
    """Let an excluded entry be sent again."""
    return await _change(call, AsyncConversation.include)


async def _change(
    call: ApiCall[BranchQuery, Nothing], change: Callable[[AsyncConversation, str], Awaitable[None]]
) -> Marks:
    """Change how an entry is marked, and return all marks."""
    talk = await open_talk(call, call.query.branch)
    await change(talk, call.path["entry"])
    return await _read_marks(talk)


async def _read_marks(talk: AsyncConversation) -> Marks:
    return Marks(pinned=await talk.pins(), excluded=await talk.excluded())


_ONE = "/conversations/{conversation}"
_PIN, _EXCLUSION = _ONE + "/pins/{entry}", _ONE + "/exclusions/{entry}"
ROUTES: tuple[Route[Any, Any], ...] = (
    Route("POST", _ONE + "/notes", add_note, body=AddNote, answer=Note, status=201, errors=(409,)),
    Route("GET", _ONE + "/marks", list_marks, query=BranchQuery, answer=Marks),
    Route("PUT", _PIN, pin, query=BranchQuery, answer=Marks),
    Route("DELETE", _PIN, unpin, query=BranchQuery, answer=Marks),
    Route("PUT", _EXCLUSION, exclude, query=BranchQuery, answer=Marks),
    Route("DELETE", _EXCLUSION, include, query=BranchQuery, answer=Marks),
)

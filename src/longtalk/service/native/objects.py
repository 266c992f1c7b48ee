"""The values that several routes answer with. Times are milliseconds since 1970, positions count entries from 0."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec

from longtalk.archive.history import HistoryEntry, StoredTurn
from longtalk.events import ToolCall, ToolResult
from longtalk.notices import Notice
from longtalk.service.errors import from_stored_error
from longtalk.service.ids import is_chain
from longtalk.stores.base import ConversationInfo
from longtalk.transcript.transcript import TurnStatus
from longtalk.usage import Usage

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
"""A name of a branch, an id, a field."""
Text = Annotated[str, msgspec.Meta(min_length=1)]
Meta = dict[str, Any]
_LONE = re.compile("[\ud800-\udfff]")


class BranchQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The branch that a request is about."""

    branch: Name = "main"


class ConversationObject(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation."""

    id: str
    title: str
    """The title that a client has set; empty if none."""
    created: int
    updated: int
    entries: int
    branches: list[str]
    meta: Meta
    kind: Literal["conversation", "chain"]
    """A chain is made by responses that refer to each other and belong to no conversation."""


class CallObject(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool. `arguments` is the JSON that the model wrote."""

    id: str
    name: str
    arguments: str


class ResultObject(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call."""

    id: str
    name: str
    text: str
    failed: bool


class EntryObject(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a conversation: a message, an answer, a tool's result or a note."""

    id: str
    turn: str
    position: int
    role: str
    text: str
    at: int
    mark: str
    status: str
    meta: Meta
    wire: str
    native: str
    """The exact JSON of the message."""
    reasoning: str
    calls: list[CallObject]
    results: list[ResultObject]
    model: str
    finish_reason: str
    usage: Usage | None


class NoticeObject(msgspec.Struct, frozen=True, kw_only=True):
    """Something worth knowing that did not stop the turn."""

    kind: str
    text: str


class TurnObject(msgspec.Struct, frozen=True, kw_only=True):
    """A turn: a message and what came of it."""

    id: str
    conversation: str
    """Empty for a turn that nothing is stored of."""
    branch: str
    status: TurnStatus
    model: str
    started: int
    ended: int
    finish_reason: str
    text: str
    """The text of the last answer."""
    calls: list[CallObject]
    """The calls that wait for results of the client."""
    usage: Usage
    cost: float | None
    error: str
    entries: list[EntryObject]
    notices: list[NoticeObject] = []
    state: str | None = None
    """The sealed state, in base64; null for a stored conversation."""


def to_conversation(info: ConversationInfo) -> ConversationObject:
    """Return a conversation as an object."""
    title = info.meta.get("title")
    return ConversationObject(
        id=info.id,
        title=title if isinstance(title, str) else "",
        created=info.created,
        updated=info.updated,
        entries=info.entries,
        branches=list(info.branches),
        meta=info.meta,
        kind="chain" if is_chain(info.id) else "conversation",
    )


def to_call(call: ToolCall) -> CallObject:
    """Return a call as an object."""
    return CallObject(id=clean(call.id), name=clean(call.name), arguments=call.arguments.decode("utf-8", "replace"))


def to_result(result: ToolResult) -> ResultObject:
    """Return the result of a call as an object."""
    return ResultObject(id=clean(result.id), name=clean(result.name), text=clean(result.text), failed=result.failed)


def to_notice(notice: Notice) -> NoticeObject:
    """Return a notice as an object."""
    return NoticeObject(kind=notice.kind, text=clean(notice.text))


def to_entry(entry: HistoryEntry) -> EntryObject:
    """Return an entry as an object."""
    return EntryObject(
        id=entry.id,
        turn=entry.turn,
        position=entry.position,
        role=entry.role,
        text=clean(entry.text),
        at=entry.at,
        mark=entry.mark,
        status=entry.status,
        meta=dict(entry.meta),
        wire=entry.wire,
        native=entry.native.decode("utf-8", "replace"),
        reasoning=clean(entry.reasoning),
        calls=[to_call(call) for call in entry.calls],
        results=[to_result(result) for result in entry.results],
        model=entry.model,
        finish_reason=entry.finish_reason,
        usage=entry.usage,
    )


def to_turn(stored: StoredTurn, conversation: str = "", **more: Any) -> TurnObject:
    """Return a turn as an object. `more` are fields that are known only while it runs."""
    turn = stored.turn
    answers = [each for each in stored.entries if each.role == "assistant"]
    return TurnObject(
        id=turn.id,
        conversation=conversation,
        branch=stored.branch,
        status=stored.status,
        model=turn.model,
        started=turn.started,
        ended=turn.ended,
        finish_reason=answers[-1].finish_reason if answers else "",
        text=clean(stored.text),
        calls=[to_call(call) for call in stored.calls],
        usage=stored.usage,
        cost=stored.cost,
        error=clean(from_stored_error(turn.error).message) if turn.error else "",
        entries=[to_entry(each) for each in stored.entries],
        **more,
    )


def clean(text: str) -> str:
    """Return a text without lone surrogates, which JSON can't carry."""
    return text if text.isascii() else _LONE.sub("\ufffd", text)

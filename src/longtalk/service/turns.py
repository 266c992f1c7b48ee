"""A turn that a client asks for: its input as messages of the client's wire, and the library's stream of it.

Whatever surface a request comes from, it becomes a `TurnOrder`. The library does the rest: a stored turn is one of
`AsyncConversation`, and one that nothing is kept of is one of `AsyncChat`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk._util.concurrency import call_store
from longtalk.branches.branch import AsyncBranch
from longtalk.branches.operations import read_until
from longtalk.chat.chat import AsyncChat, Compaction
from longtalk.context.compose import Context
from longtalk.context.epochs import Epoch
from longtalk.conversation.conversation import AsyncConversation
from longtalk.conversation.preview import preview_turn
from longtalk.conversation.request import TurnRequest
from longtalk.errors import InputError, NotFound, ResultMismatch
from longtalk.events import Compacted
from longtalk.observation import OnEvent
from longtalk.policies import KeepAll
from longtalk.service.errors import ApiError
from longtalk.service.history import add_history, skip_known
from longtalk.service.models import ServedModel
from longtalk.state import codec
from longtalk.stores.base import MAIN, Store
from longtalk.tokens import Estimator, counter_for
from longtalk.tools import Tool
from longtalk.transcript.standing import read_record
from longtalk.transcript.transcript import Entry, Transcript
from longtalk.transfer.append import append_messages, read_messages
from longtalk.transfer.shorten import shorten
from longtalk.turn.engine import AsyncEngine, TurnArguments
from longtalk.turn.message import OpenAIToolOutput, ParsedMessage, ToolOutput
from longtalk.turn.stream import AsyncStream
from longtalk.wires import HTTP_WIRES, NAMES
from longtalk.wires.convert import has_images, list_lost_content
from longtalk.wires.entries import view_entry


class TurnOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One turn that a client asks for."""

    owner: str
    model: ServedModel
    wire: str
    """The wire of the messages."""
    messages: Sequence[bytes]
    """What the client sends, as JSON: earlier messages that the service does not have yet, and the new ones."""
    first: int = 0
    """The place of the first of these messages in the list that the client has sent, for errors."""
    system: str | None = None
    tools: Sequence[Tool] = ()
    options: Mapping[str, Any] = {}
    max_tool_calls: int | None = None
    """How many calls of tools that the service runs itself, such as `recall`, the turn may have; None for no limit."""
    output: Any = None
    """The type or JSON Schema that the answer must match; None for text."""
    conversation: str | None = None
    """Where the turn is kept; None keeps nothing."""
    state: bytes | None = None
    """What was said before: by the conversation of a turn that is not kept, or by a compaction item of the input."""
    branch: str = MAIN
    after: str | None = None
    """The turn that this one follows, on a branch of its own if others follow it already."""
    edits: str | None = None
    regenerates: str | None = None
    turn: str | None = None
    """The id that the turn gets; None makes one."""
    instruction: str | None = None
    brief: Mapping[str, Any] | None = None
    key: str = ""
    meta: Mapping[str, Any] | None = None


class TurnInput(msgspec.Struct, frozen=True):
    """The messages of a request: those that were said before, and the new ones."""

    history: tuple[bytes, ...]
    message: ParsedMessage | None
    """None if a turn goes on without a new message."""


def read_input(order: TurnOrder) -> TurnInput:
    """Return the messages of a request, checked. Raises `ApiError` if they can't be sent to the model."""
    wire = HTTP_WIRES[order.wire]
    natives = [json_bytes.fields(each) for each in order.messages]
    last = max((i for i, fields in enumerate(natives) if _is_answer(fields)), default=-1)
    history, new = tuple(order.messages[: last + 1]), order.messages[last + 1 :]
    if not new:
        if history or (order.conversation is None and order.state is None):
            message = "There is no new message after the last answer: send one."
            raise ApiError(400, message, param=_PARAM[order.wire], code="invalid_value")
        return TurnInput((), None)
    outputs = [each for each in new if _is_result(json_bytes.fields(each))]
    said = [each for each in new if not _is_result(json_bytes.fields(each))]
    try:
        results = tuple(_read_output(each, order) for each in outputs)
        entries = read_messages(said, wire) if said else []
    except InputError as problem:
        raise ApiError(400, str(problem), param=_PARAM[order.wire], code="invalid_value") from None
    if _list_lost(order, entries):
        _refuse_lost(order, said)
    return TurnInput(history, ParsedMessage(tuple(entries), results))


def _list_lost(order: TurnOrder, entries: Sequence[Entry]) -> list[str]:
    """Return what of these messages the provider can't read."""
    lost = list_lost_content(entries, order.model.provider.wire)
    images = not order.model.provider.capabilities.images and "images" not in lost and has_images(entries)
    return [*lost, "images"] if images else lost


def _refuse_lost(order: TurnOrder, said: Sequence[bytes]) -> None:
    """Raise `ApiError` for the first message that the provider can't read."""
    for each in said:
        what = ", ".join(_list_lost(order, read_messages([each], HTTP_WIRES[order.wire])))
        if what:
            place = f"{_PARAM[order.wire]}[{order.first + list(order.messages).index(each)}].content"
            message = f"{order.model.provider.label} can't read this part of the input: {what}."
            raise ApiError(400, message, param=place, code="unsupported_value")


@contextmanager
def name_results(order: TurnOrder) -> Iterator[None]:
    """Name the input in the error for results that belong to no open call, or that are missing."""
    try:
        yield
    except ResultMismatch as problem:
        raise ApiError(400, str(problem), param=_name_result(order, problem), code="invalid_value") from None


def _name_result(order: TurnOrder, problem: ResultMismatch) -> str:
    """Return the path of the first result that no call waits for, or that of the list."""
    name = _PARAM[order.wire]
    for number, each in enumerate(order.messages, order.first):
        fields = json_bytes.fields(each)
        for field in ("call_id", "tool_call_id"):
            if _is_result(fields) and json_bytes.text(fields.get(field, b"")) in problem.unknown:
                return f"{name}[{number}].{field}"
    return name


async def open_stream(order: TurnOrder, store: Store, *, on_event: OnEvent | None) -> AsyncStream[Any]:
    """Return the stream of a turn. A stored turn begins when it is first asked for an event."""
    with name_results(order):
        return await _open_stream(order, store, on_event=on_event)


async def _open_stream(order: TurnOrder, store: Store, *, on_event: OnEvent | None) -> AsyncStream[Any]:
    model, given = order.model, read_input(order)
    options = {**model.options, **order.options}
    system = model.system or None if order.system is None else order.system
    counter = counter_for(model.provider.label)
    if order.conversation is None:
        arguments = TurnArguments(
            message=given.message,
            system=system,
            instruction=order.instruction,
            tools=order.tools,
            options=options,
            max_tool_calls=order.max_tool_calls,
            brief=order.brief,
            output=order.output,
        )
        chat = AsyncChat(model.provider, policy=model.policy, on_event=on_event)
        return chat.start(arguments, read_state_before(order, given))
    talk = AsyncConversation(
        order.conversation,
        model=model.provider,
        owner=order.owner,
        store=store,
        branch=order.branch,
        policy=model.policy,
        on_event=on_event,
    )
    after = order.after
    if (given.history or order.state) and not await _has_turn(order, store):
        said = [*(codec.decode(order.state, wires=NAMES) if order.state else ()), *_read_history(order, given)]
        talk = await add_history(talk, said, store=store, policy=model.policy, counter=counter, after=after)
        after = None
    request = TurnRequest(
        message=given.message,
        system=system,
        tools=order.tools,
        options=options,
        max_tool_calls=order.max_tool_calls,
        output=order.output,
        key=order.key or None,
        meta=order.meta,
        after=after,
        edits=order.edits,
        regenerates=order.regenerates,
        turn=order.turn,
        instruction=order.instruction,
        brief=order.brief,
    )
    return talk.start(request)


def read_state_before(order: TurnOrder, given: TurnInput) -> bytes | None:
    """Return the state of what was said before the new message of a turn that is not kept; None for nothing."""
    if not given.history:
        return order.state
    before = codec.decode(order.state, wires=NAMES) if order.state else Transcript()
    counter = counter_for(order.model.provider.label)
    try:
        new = skip_known(_read_history(order, given), list(before))
        return codec.encode(append_messages(before, new, counter) if new else before)
    except InputError as problem:
        raise ApiError(400, str(problem), param=_PARAM[order.wire], code="invalid_value") from None


async def read_state(store: Store, owner: str, conversation: str, branch: str, turn: str | None = None) -> bytes | None:
    """Return what was said in a conversation, to its end or up to a turn, as a state; None if it is empty."""
    said = await read_until(AsyncBranch(store, owner, conversation, branch, KeepAll()), turn)
    return codec.encode(said) if len(said) else None


async def read_shortened(store: Store, owner: str, conversation: str, entry: str) -> bytes:
    """Return what was said in a conversation up to an entry, as a state, with the summary that was made there.

    Raises `NotFound` without such an entry, and `Busy` if its turn is running.
    """
    heads = await call_store(store, lambda: store.branches(owner, conversation))
    found: Transcript | None = None
    for branch in sorted((head.branch for head in heads), key=lambda name: name != MAIN):
        with suppress(NotFound):
            said = await read_until(AsyncBranch(store, owner, conversation, branch, KeepAll()), entry)
            found = found or said
            record = next((each for each in said.records if (each.kind, each.entry) == ("epoch", entry)), None)
            epoch = read_record(record, Epoch) if record is not None else None
            if epoch is not None:
                return codec.encode(shorten(said, epoch, Estimator()))
    if found is None:
        raise NotFound(f"Conversation {conversation!r} has no entry {entry!r}.")
    # What the summary was made from has been erased in part, and the summary with it.
    return codec.encode(found)


def write_shortened(order: TurnOrder, event: Compacted) -> bytes:
    """Return what a compaction has left of a conversation, as a state."""
    return codec.encode(shorten(event.transcript, event.epoch, counter_for(order.model.provider.label)))


async def count_tokens(order: TurnOrder) -> int:
    """Return the number of tokens of the request that a turn would send first. Nothing is sent or kept."""
    model, given = order.model, read_input(order)
    return await AsyncChat(model.provider, policy=model.policy).count_tokens(
        given.message,
        state=read_state_before(order, given),
        system=model.system or None if order.system is None else order.system,
        tools=order.tools,
        options={**model.options, **order.options},
        output=order.output,
    )


async def prepare_request(order: TurnOrder, store: Store) -> tuple[Context, bytes, int]:
    """Return the first request of a turn on a stored conversation, its JSON, and the number of entries before the turn.

    Nothing is sent or kept.
    """
    model, given = order.model, read_input(order)
    state = read_state_before(order, given)
    before = codec.decode(state, wires=NAMES) if state else Transcript()
    context, body = await preview_turn(
        AsyncEngine(model.provider, policy=model.policy),
        TurnArguments(
            message=given.message,
            system=model.system or None if order.system is None else order.system,
            instruction=order.instruction,
            tools=order.tools,
            options={**model.options, **order.options},
            output=order.output,
        ),
        before,
        store=store,
        owner=order.owner,
        conversation=order.conversation or "",
        branch=order.branch,
    )
    return context, body, before.size


def append_input(order: TurnOrder) -> bytes | None:
    """Return the state of what was said before a turn that is not kept, with its whole input; None for nothing."""
    return read_state_before(msgspec.structs.replace(order, messages=()), TurnInput(tuple(order.messages), None))


async def compact(order: TurnOrder, *, on_event: OnEvent | None) -> Compaction:
    """Shorten what was said before, and what the input adds to it, by the policy of the model."""
    model = order.model
    state = append_input(order)
    if state is None:
        raise ApiError(400, "There is nothing to compact.", param=_PARAM[order.wire], code="invalid_value")
    system = model.system or None if order.system is None else order.system
    options = {**model.options, **order.options}
    return await AsyncChat(model.provider, policy=model.policy, on_event=on_event).compact(
        state=state, system=system, tools=order.tools, options=options
    )


def count_history(order: TurnOrder) -> int:
    """Return how many entries the earlier messages of a request become."""
    natives = [json_bytes.fields(each) for each in order.messages]
    last = max((i for i, fields in enumerate(natives) if _is_answer(fields)), default=-1)
    return len(_read_history(order, TurnInput(tuple(order.messages[: last + 1]), None)))


def _read_history(order: TurnOrder, given: TurnInput) -> list[Entry]:
    """Return the entries of the earlier messages that the client has sent."""
    if not given.history:
        return []
    try:
        return read_messages(given.history, HTTP_WIRES[order.wire])
    except InputError as problem:
        raise ApiError(400, str(problem), param=_PARAM[order.wire], code="invalid_value") from None


async def _has_turn(order: TurnOrder, store: Store) -> bool:
    """Return True if this request was begun before, so that its history is there."""
    if not order.key:
        return False
    conversation = order.conversation or ""
    return await call_store(store, lambda: store.keyed_turn(order.owner, conversation, order.key)) is not None


_PARAM = {"openai-chat": "messages", "openai-responses": "input"}
_RESULTS = (b'"function_call_output"', b'"custom_tool_call_output"')
_SAID = (b'"user"', b'"system"', b'"developer"', b'"tool"')


def _is_result(fields: Mapping[str, bytes]) -> bool:
    return fields.get("role") == b'"tool"' or fields.get("type") in _RESULTS


def _is_answer(fields: Mapping[str, bytes]) -> bool:
    """Return True for a message or an item from a model."""
    return not _is_result(fields) and fields.get("role") not in _SAID


def _read_output(native: bytes, order: TurnOrder) -> ToolOutput:
    """Return the result of a call that the client has run."""
    wire = HTTP_WIRES[order.wire]
    (entry,) = read_messages([native], wire)
    seen = view_entry(entry)
    value = json_bytes.value(native)
    parts = value.get("output", value.get("content"))
    if isinstance(parts, list) and any(part.get("type") not in ("input_text", "text") for part in parts):
        return OpenAIToolOutput(seen.call_id, parts)
    return ToolOutput(seen.call_id, seen.text)

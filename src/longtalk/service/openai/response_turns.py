"""A response as a turn: where it is made, what it is made from, and the run that makes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk._util.concurrency import call_store
from longtalk.events import Compacted, Done, Started
from longtalk.reply import TurnReply
from longtalk.service.access import Caller
from longtalk.service.errors import ApiError, conversation_locked, from_error, quote
from longtalk.service.ids import ResponseId, new_conversation_id, new_key, parse_response_id
from longtalk.service.openai.client_tools import CallForm, list_forms, write_call_forms
from longtalk.service.openai.compactions import COMPACTS, NO_COMPACTIONS, open_content, write_content
from longtalk.service.openai.create_response import CreateResponse
from longtalk.service.openai.item_pages import find_items, find_items_of
from longtalk.service.openai.item_references import is_reference, replace_references
from longtalk.service.openai.items import Item, place_items, to_output_items
from longtalk.service.openai.known_input import KnownInput, find_known_input
from longtalk.service.openai.response_events import ResponseEvents
from longtalk.service.openai.response_object import find_status, find_usage, make_response
from longtalk.service.openai.stored_responses import HISTORY, find_response
from longtalk.service.run import Run, RunName
from longtalk.service.service import Service
from longtalk.service.turns import TurnOrder, count_history, name_results, read_state
from longtalk.state import codec
from longtalk.turn.stream import AsyncStream
from longtalk.wires import NAMES


class Target(msgspec.Struct, frozen=True):
    """Where a response is made: its id, and what it follows."""

    id: ResponseId
    is_stored: bool
    after: str | None = None
    """The turn that it follows, on the branch `branch`."""
    branch: str = "main"
    state: bytes | None = None
    """What was said before, for a response that is not stored."""
    is_new: bool = False
    """Whether nothing was said before."""
    known: int = 0
    """How many items of the input are what the response that this one follows ends with, and are not added again."""
    history: int = 0
    """How many entries these are."""


async def find_target(service: Service, caller: Caller, given: CreateResponse, seed: str = "") -> Target:
    """Return where the response of a request is made. Raises `ApiError` if the one that it follows is not found."""
    key, store, owner = new_key(seed), service.store, caller.owner
    if given.previous_response_id is not None:
        previous = parse_response_id(given.previous_response_id)
        stored = await find_response(store, owner, previous) if previous else None
        if previous is None or stored is None:
            raise previous_not_found(given.previous_response_id)
        if stored.turn.status == "running" and await service.runs.is_running(RunName(owner, str(previous))):
            # The answer that the client wants to go on from is not there yet.
            raise conversation_locked()
        if given.is_stored:
            return Target(ResponseId(previous.conversation, key), True, stored.turn.id, stored.branch)
        state = await read_state(store, owner, previous.conversation, stored.branch, stored.turn.id)
        return Target(new_chain_id(key), False, state=state)
    conversation = given.conversation_id
    if conversation is not None:
        info = await call_store(store, lambda: store.info(owner, conversation))
        if info is None:
            raise ApiError(
                404, f"Conversation {quote(conversation)} not found.", param="conversation", code="not_found"
            )
        if given.is_stored:
            return Target(ResponseId(conversation, key), True)
        return Target(new_chain_id(key), False, state=await read_state(store, owner, conversation, "main"))
    return await _find_known(service, caller, given, key) or Target(
        new_chain_id(key, seed), given.is_stored, is_new=True
    )


async def _find_known(service: Service, caller: Caller, given: CreateResponse, key: str) -> Target | None:
    """Return where a response is made whose input begins with what a chain has already."""
    raw = bytes(given.input)
    if not given.is_stored or raw[:1] != b"[" or b'"id"' not in raw:
        return None
    items, store, owner = given.read_input(), service.store, caller.owner
    raw_items = json_bytes.items(raw)
    found: KnownInput | None = await call_store(store, lambda: find_known_input(store, owner, raw_items))
    if found is None or len(items) == found.items or await find_response(store, owner, found.response) is None:
        return None
    return Target(
        ResponseId(found.response.conversation, key),
        True,
        found.keyed.turn.id,
        found.keyed.branch,
        known=found.items,
        history=found.entries,
    )


def previous_not_found(name: str) -> ApiError:
    """Return the error for a previous response that the caller does not have."""
    return ApiError(
        400,
        f"Previous response with id {quote(name)} not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def new_chain_id(key: str = "", seed: str = "") -> ResponseId:
    """Return the id of a response that begins a chain."""
    return ResponseId(new_conversation_id(chain=True, seed=seed), key or new_key())


async def make_order(
    service: Service, caller: Caller, given: CreateResponse, target: Target, *, allow_empty: bool = False
) -> TurnOrder:
    """Make the order for the turn that a request asks for. Without anything said, it must be for a later turn."""
    model = service.models.find(given.model, allowed=caller.models)
    tools = given.choose_tools().tools
    options = given.make_options(model.provider, model.options)
    model = msgspec.structs.replace(model, policy=given.choose_policy(model.policy, model.provider))
    items = given.read_input()
    count = len(items)
    messages, state = await _split_compaction(service, caller, items[target.known :], target)
    messages = await _resolve_references(service, caller, messages, target, state)
    if not (messages or state or allow_empty) and target.is_new:
        raise ApiError(400, "`input` is empty: send text or items.", param="input", code="invalid_value")
    order = TurnOrder(
        owner=caller.owner,
        model=model,
        wire="openai-responses",
        messages=messages,
        first=max(0, count - len(messages)),
        system=given.instructions,
        tools=tools,
        options=options,
        max_tool_calls=given.max_tool_calls,
        output=given.read_output(),
        conversation=target.id.conversation if target.is_stored else None,
        branch=target.branch,
        state=state,
        after=target.after,
        key=target.id.key,
    )
    response = {**given.to_echo(), "model": model.name}
    if target.is_stored and (earlier := target.history + count_history(order)):
        response[HISTORY] = earlier
    if given.compacts:
        response[COMPACTS] = True
    return msgspec.structs.replace(order, meta={"response": response, **write_call_forms(given.call_forms)})


async def _split_compaction(
    service: Service, caller: Caller, items: list[bytes], target: Target
) -> tuple[list[bytes], bytes | None]:
    """Return the items after the last compaction item, and the state that it holds.

    Without one, return all items, and the state before the target.
    """
    places = [i for i, item in enumerate(items) if json_bytes.fields(item).get("type") == b'"compaction"']
    if not places:
        return items, target.state
    where = f"input[{places[-1]}]"
    if not target.is_new:
        raise ApiError(
            400,
            "A compaction item replaces all earlier messages: leave `previous_response_id` and `conversation` out.",
            param=where,
        )
    content = json_bytes.value(items[places[-1]])["encrypted_content"]
    return items[places[-1] + 1 :], await open_content(service, caller.owner, content, where)


async def _resolve_references(
    service: Service, caller: Caller, items: list[bytes], target: Target, state: bytes | None
) -> list[bytes]:
    """Return the input with the items that it refers to."""
    if not any(map(is_reference, items)):
        return items
    store, conversation = service.store, target.id.conversation

    def find(names: Collection[str]) -> Mapping[str, Item]:
        found = {} if state is None else find_items_of(codec.decode(state, wires=NAMES), names)
        rest = set(names) - found.keys()
        return found | find_items(store, caller.owner, rest, conversation=conversation, branch=target.branch)

    found: list[bytes] = await call_store(store, lambda: replace_references(items, "input", find))
    return found


async def start_run(
    service: Service,
    caller: Caller,
    given: CreateResponse,
    target: Target,
    *,
    is_new: bool = True,
    logs: bool,
    on_reply: Callable[[TurnReply], None] | None = None,
    parked: bytes | None = None,
) -> Run:
    """Start the run of a response, or find it if an equal request has started it.

    `on_reply` is called with the reply when it is complete, before the last events. `parked` is kept while it runs.
    """
    order = await make_order(service, caller, given, target)
    name = RunName(caller.owner, str(target.id))

    async def play(run: Run) -> Item:
        stream = await service.open_stream(order)
        return await _play(service, run, stream, given, target, order, on_reply=on_reply)

    running = None if is_new else service.runs.find(name)
    return running or await service.start_run(name, play, logs=logs, parked=parked)


async def play_response(
    service: Service,
    caller: Caller,
    given: CreateResponse,
    target: Target,
    run: Run,
    *,
    begun: ResponseEvents | None,
    compactions: Mapping[str, str] = NO_COMPACTIONS,
) -> Item:
    """Go on with a response in a run that has taken it over. `begun` renders the events after those of the log.

    `compactions` are the contents of the compaction items so far.
    """
    order = await make_order(service, caller, given, target)
    stream = await service.open_stream(order)
    return await _play(service, run, stream, given, target, order, begun=begun, compactions=compactions)


async def _play(
    service: Service,
    run: Run,
    stream: AsyncStream[Any],
    given: CreateResponse,
    target: Target,
    order: TurnOrder,
    *,
    on_reply: Callable[[TurnReply], None] | None = None,
    begun: ResponseEvents | None = None,
    compactions: Mapping[str, str] = NO_COMPACTIONS,
) -> Item:
    """Play a turn, and render its events. Return the response."""
    compactions = dict(compactions)
    events, id_, echo = begun, str(target.id), given.to_echo()
    model, tools = order.model.name, list_forms(echo.get("tools", ()))

    def begin(turn: str, at: int) -> ResponseEvents:
        encrypted = given.wants_encrypted
        made = ResponseEvents(id_, turn, model=model, echo=echo, tools=tools, created=at, encrypted=encrypted)
        run.emit(*made.begin(queued=bool(given.background)))
        return made

    try:
        with run.play(stream), name_results(order):
            async for event in stream:
                if type(event) is Started:
                    events = events or begin(event.turn, event.at)
                    continue
                if events is None:
                    events = begin(stream.reply.turn_id, stream.reply._draft.turn.started)
                if type(event) is Done:
                    break
                if type(event) is Compacted:
                    if given.compacts:
                        content = compactions[event.entry] = await write_content(service, order, event)
                        run.emit(*events.add_compaction(content))
                    continue
                run.emit(*events.feed(event))
    except Exception as problem:
        if events is None:
            raise
        error = from_error(problem)
        said = _list_output(stream.reply, given, tools, target, compactions)
        usage = find_usage(stream.reply._draft.turn, stream.reply.usage, "failed")
        run.emit(*events.end("failed", error=error, usage=usage, output=said))
        raise
    reply: TurnReply = stream.reply
    if events is None:
        events = begin(reply.turn_id, reply._draft.turn.started)
    status, reason = ("cancelled", None) if run.cancelled else find_status(reply._draft.turn)
    refusal = reply.message.refusal if reply.message is not None else ""
    if on_reply is not None:
        on_reply(reply)
    turn = reply._draft.turn
    completed = turn.ended if status == "completed" else None
    output = _list_output(reply, given, tools, target, compactions)
    usage = find_usage(turn, reply.usage, status)
    run.emit(*events.end(status, usage=usage, reason=reason, refusal=refusal, completed=completed, output=output))
    return make_response(
        id_,
        model=model,
        created=turn.started,
        echo=echo,
        status=status,
        output=output,
        usage=usage,
        reason=reason,
        completed=completed,
    )


def _list_output(
    reply: TurnReply,
    given: CreateResponse,
    tools: Mapping[str, CallForm],
    target: Target,
    compactions: Mapping[str, str],
) -> list[Item]:
    items = to_output_items(
        reply.entries, reply.turn_id, tools=tools, encrypted=given.wants_encrypted, compactions=compactions
    )
    return place_items(items, target.id.conversation)

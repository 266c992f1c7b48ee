"""The routes of the Responses API. A response is a turn; nothing of it is stored twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from longtalk._util.concurrency import call_store
from longtalk.events import Done, Started
from longtalk.reply import TurnReply
from longtalk.service.access import Caller
from longtalk.service.errors import ApiError, from_error, not_found
from longtalk.service.http import DONE, EventStream, decode, json_response, read_body
from longtalk.service.idempotency import Claim, Idempotency
from longtalk.service.ids import ResponseId, new_conversation_id, new_key, parse_response_id
from longtalk.service.openai.create_response import CreateResponse
from longtalk.service.openai.item_pages import paginate, read_page_query
from longtalk.service.openai.items import Item, to_output_items
from longtalk.service.openai.response_events import ResponseEvents
from longtalk.service.openai.response_object import find_status, make_response
from longtalk.service.openai.stored_responses import StoredResponse, find_response
from longtalk.service.run import Run, RunName
from longtalk.service.service import Service
from longtalk.service.turns import TurnOrder
from longtalk.transcript.transcript import now
from longtalk.turn.stream import AsyncStream

PATH = "/v1/responses"
_ENCRYPTED = "reasoning.encrypted_content"


async def create(service: Service, caller: Caller, request: Request) -> Response:
    """Make a response: start a run, and follow it."""
    body = await read_body(request, service.settings.limits)
    given = decode(body, CreateResponse, service.settings.limits)
    given.check()
    idempotency = Idempotency(service.storage)
    key = request.headers.get("idempotency-key", "")
    seed = f"{len(caller.owner)}:{caller.owner}{key}" if key else ""
    target = await _find_target(service, caller, given, seed)
    claim = await idempotency.claim(caller.owner, PATH, body, request.headers, str(target.id))
    if not claim.is_new:
        found = parse_response_id(claim.response)
        target = msgspec.structs.replace(target, id=found) if found else target
    run = await _start(service, caller, given, target, is_new=claim.is_new)
    if given.background:
        await run.wait_for_events()
        if not given.stream:
            return json_response(msgspec.json.decode(run.events[0])["response"])
    if given.stream:
        await run.wait_for_events()
        return EventStream(_stream(service, run.name, -1, idempotency, claim))
    result = await _wait(run)
    await idempotency.mark_delivered(claim)
    return json_response(result)


async def retrieve(service: Service, caller: Caller, request: Request) -> Response:
    """Return a response, or with `stream=true` its events after the number `starting_after`."""
    found = _parse_id(request)
    name = RunName(caller.owner, str(found))
    if request.query_params.get("stream") == "true":
        after = request.query_params.get("starting_after", "-1")
        if not after.lstrip("-").isdigit():
            raise ApiError(400, "`starting_after` must be a number.", param="starting_after")
        if not await service.runs.has_events(name):
            stored = await _find_stored(service, caller, found)
            return EventStream(_replay(stored, int(after)))
        return EventStream(_stream(service, name, int(after)))
    stored_or_none = await find_response(service.store, caller.owner, found)
    if stored_or_none is None:
        run = service.runs.find(name)
        if run is None or not run.events:
            raise _unknown(found)
        return json_response(msgspec.json.decode(run.events[0])["response"])
    return json_response(stored_or_none.to_object())


async def delete(service: Service, caller: Caller, request: Request) -> Response:
    """Delete a response. A chain whose responses are all deleted is deleted whole."""
    found = _parse_id(request)
    stored = await _find_stored(service, caller, found)
    await stored.delete(service.store, caller.owner)
    return json_response({"id": str(found), "object": "response", "deleted": True})


async def cancel(service: Service, caller: Caller, request: Request) -> Response:
    """End a response that is in progress. What was said is kept."""
    found = _parse_id(request)
    name = RunName(caller.owner, str(found))
    run = service.runs.find(name)
    await service.runs.cancel(name)
    if run is not None:
        while not run.ended:
            await run.wait()
    stored = await _find_stored(service, caller, found)
    for _ in range(100):
        if stored.turn.status != "running" or await service.runs.read_info(name) is None:
            break
        await asyncio.sleep(0.05)
        stored = await _find_stored(service, caller, found)
    return json_response(stored.to_object())


async def list_input_items(service: Service, caller: Caller, request: Request) -> Response:
    """Return the items that a response was made from."""
    stored = await _find_stored(service, caller, _parse_id(request))
    return json_response(paginate(stored.to_input_items(), read_page_query(request)))


# Inside


class _Target(msgspec.Struct, frozen=True):
    """Where a response is made: its id, and the turn that it follows."""

    id: ResponseId
    is_stored: bool
    after: str | None = None
    branch: str = "main"


async def _find_target(service: Service, caller: Caller, given: CreateResponse, seed: str) -> _Target:
    key = new_key(seed)
    if given.previous_response_id is not None:
        previous = parse_response_id(given.previous_response_id)
        stored = await find_response(service.store, caller.owner, previous) if previous else None
        if previous is None or stored is None:
            raise ApiError(
                400,
                f"Previous response with id {given.previous_response_id!r} not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        if not given.is_stored:
            raise ApiError(400, "With `previous_response_id`, `store` can't be false here.", param="store")
        return _Target(ResponseId(previous.conversation, key), True, stored.turn.id, stored.branch)
    conversation = given.conversation_id
    if conversation is not None:
        info = await call_store(service.store, lambda: service.store.info(caller.owner, conversation))
        if info is None:
            raise ApiError(404, f"Conversation {conversation!r} not found.", param="conversation", code="not_found")
        return _Target(ResponseId(conversation, key), given.is_stored)
    return _Target(ResponseId(new_conversation_id(chain=True, seed=seed), key), given.is_stored)


async def _start(service: Service, caller: Caller, given: CreateResponse, target: _Target, *, is_new: bool) -> Run:
    """Start the run of a response, or find it if an equal request has started it."""
    model = service.models.find(given.model, allowed=caller.models)
    echo = given.to_echo()
    tools = given.make_tools()
    order = TurnOrder(
        owner=caller.owner,
        model=model,
        wire="openai-responses",
        messages=given.read_input(),
        system=given.instructions,
        tools=tools,
        options=given.make_options(model.provider),
        output=given.read_output_schema(),
        conversation=target.id.conversation if target.is_stored else None,
        branch=target.branch,
        after=target.after,
        key=target.id.key,
        meta={"response": {**echo, "model": model.name}},
    )
    name = RunName(caller.owner, str(target.id))
    encrypted = _ENCRYPTED in (given.include or ())
    names = [tool.name for tool in tools]

    async def play(run: Run) -> Item:
        stream = await service.open_stream(order)
        return await _play(run, stream, str(target.id), model.name, echo, names, encrypted=encrypted)

    if not is_new:
        running = service.runs.find(name)
        if running is not None:
            return running
    return await service.start_run(name, play, logs=bool(given.stream or given.background))


async def _play(
    run: Run,
    stream: AsyncStream[Any],
    id: str,  # noqa: A002
    model: str,
    echo: Mapping[str, Any],
    tools: list[str],
    *,
    encrypted: bool,
) -> Item:
    """Play a turn, and render its events. Return the response."""
    events: ResponseEvents | None = None
    created = now()

    def begin(turn: str) -> ResponseEvents:
        made = ResponseEvents(id, turn, model=model, echo=echo, tools=tools, created=created)
        run.emit(*made.begin())
        return made

    try:
        async for event in stream:
            if type(event) is Started:
                events = begin(event.turn)
                continue
            if events is None:
                events = begin(stream.reply.turn_id)
            if type(event) is Done:
                break
            run.emit(*events.feed(event))
    except asyncio.CancelledError:
        if not run.cancelled:
            raise
    except Exception as problem:
        if events is None:
            raise
        error = from_error(problem)
        run.emit(*events.end("failed", error=error, usage=_read_usage(stream)))
        raise
    reply: TurnReply = stream.reply
    if events is None:
        events = begin(reply.turn_id)
    status, reason = ("cancelled", None) if run.cancelled else find_status(reply._draft.turn)
    refusal = reply.message.refusal if reply.message is not None and not reply.text else ""
    run.emit(*events.end(status, usage=reply.usage, reason=reason, refusal=refusal))
    output = to_output_items(reply.entries, reply.turn_id, tools=tools, encrypted=encrypted)
    completed = now() if status == "completed" else None
    return make_response(
        id,
        model=model,
        created=created,
        echo=echo,
        status=status,
        output=output,
        usage=reply.usage,
        reason=reason,
        completed=completed,
    )


def _read_usage(stream: AsyncStream[Any]) -> Any:
    reply: TurnReply = stream.reply
    return reply.usage


async def _wait(run: Run) -> Item:
    result: Item = await run.wait_for_end()
    return result


async def _stream(
    service: Service, name: RunName, after: int, idempotency: Idempotency | None = None, claim: Claim | None = None
) -> AsyncIterator[bytes]:
    async for _, events in service.runs.follow(name, after):
        yield b"".join(map(to_sse, events))
    yield DONE
    if idempotency is not None and claim is not None:
        await idempotency.mark_delivered(claim)


def to_sse(event: bytes) -> bytes:
    """Return an event of a response as a server-sent event, with its type as the event's name."""
    kind = event[9 : event.index(b'"', 9)]
    return b"event: %s\ndata: %s\n\n" % (kind, event)


async def _replay(stored: StoredResponse, after: int) -> AsyncIterator[bytes]:
    """Yield the events of a response that has ended, made again from the transcript."""
    for number, event in enumerate(stored.to_events()):
        if number > after:
            yield to_sse(event)
    yield DONE


async def _find_stored(service: Service, caller: Caller, found: ResponseId) -> StoredResponse:
    stored = await find_response(service.store, caller.owner, found)
    if stored is None:
        raise _unknown(found)
    return stored


def _parse_id(request: Request) -> ResponseId:
    given = request.path_params["id"]
    found = parse_response_id(given)
    if found is None:
        raise not_found(f"Response {given!r}")
    return found


def _unknown(found: ResponseId) -> ApiError:
    return not_found(f"Response {str(found)!r}")


ENDPOINTS = (
    ("POST", PATH, create),
    ("GET", PATH + "/{id}", retrieve),
    ("DELETE", PATH + "/{id}", delete),
    ("POST", PATH + "/{id}/cancel", cancel),
    ("GET", PATH + "/{id}/input_items", list_input_items),
)

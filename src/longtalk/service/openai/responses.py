"""The routes of the Responses API. A response is a turn; nothing of it is stored twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from longtalk.service.access import Caller
from longtalk.service.deletion import delete_conversation
from longtalk.service.errors import ApiError, interrupted, not_found, quote
from longtalk.service.http import DONE, EventStream, decode, json_response, read_body, read_number
from longtalk.service.idempotency import Idempotency, has_answer
from longtalk.service.ids import ResponseId, parse_response_id
from longtalk.service.openai.create_response import CreateResponse
from longtalk.service.openai.fields import ENCRYPTED
from longtalk.service.openai.item_pages import paginate, read_include, read_page_query
from longtalk.service.openai.items import Item
from longtalk.service.openai.obfuscation import pad_stream
from longtalk.service.openai.recovery import cancel_dead, park, read_interrupted, recover
from longtalk.service.openai.response_turns import Target, find_target, start_run
from longtalk.service.openai.stored_responses import StoredResponse, find_response
from longtalk.service.run import Run, RunName
from longtalk.service.service import Service

PATH = "/v1/responses"
_RECOVERY_SECONDS = 0.05
_ANSWERS = tuple(b'{"type":"response.%s"' % each for each in (b"completed", b"incomplete"))
_ENDS = (*_ANSWERS, b'{"type":"response.failed"')


async def create(service: Service, caller: Caller, request: Request) -> Response:
    """Make a response: start a run, and follow it."""
    body = await read_body(request, service.settings.limits)
    given = decode(body, CreateResponse, service.settings.limits)
    given.check()
    key = request.headers.get("idempotency-key", "")
    seed = f"{len(caller.owner)}:{caller.owner}{key}" if key else ""
    target = await find_target(service, caller, given, seed)
    idempotency = Idempotency(service.storage)
    claim = await idempotency.claim(caller.owner, PATH, body, request.headers, str(target.id))
    mark_delivered = partial(idempotency.mark_delivered, claim, request)
    if not claim.is_new:
        found = parse_response_id(claim.response)
        if found and target.known and found.conversation != target.id.conversation:
            # When the request was made first, its input was stored.
            target = Target(found, True, is_new=True)
        target = msgspec.structs.replace(target, id=found) if found else target
    name, repeats = RunName(caller.owner, str(target.id)), bool(key) and not target.is_stored
    if repeats and not claim.is_new and await has_answer(service.runs, name, _is_answer):
        return await _repeat(service, name, given)
    run = await start_run(
        service,
        caller,
        given,
        target,
        is_new=claim.is_new,
        logs=bool(given.stream or given.background) if target.is_stored else repeats,
        parked=park(caller.owner, target, body) if given.background else None,
    )
    if given.background:
        await run.wait_for_events()
        if not given.stream:
            return json_response(msgspec.json.decode(run.events[0])["response"])
    if given.stream:
        await run.wait_for_events()
        events = _stream(service, name, -1, run=run, mark_delivered=mark_delivered)
        return EventStream(pad_stream(events, wanted=given.obfuscates))
    result = await _wait(run)
    await mark_delivered()
    return json_response(result)


async def ask_for_upgrade(_: Service, __: Caller, ___: Request) -> Response:
    """Open a WebSocket for many responses, one after the other. A plain request is told to upgrade."""
    message = "This path opens a WebSocket. Send `Upgrade: websocket`, or `POST` to make a response."
    headers = {"upgrade": "websocket", "connection": "upgrade"}
    raise ApiError(426, message, code="upgrade_required", headers=headers)


async def retrieve(service: Service, caller: Caller, request: Request) -> Response:
    """Return a response, or with `stream=true` its events after the number `starting_after`."""
    found = _parse_id(request)
    name, query = RunName(caller.owner, str(found)), request.query_params
    include = read_include(request)
    if query.get("stream", "false") not in ("true", "false"):
        raise ApiError(400, "`stream` must be true or false.", param="stream", code="invalid_value")
    if query.get("stream") == "true":
        given = request.query_params.get("starting_after", "-1")
        after = -1 if given == "-1" else read_number(given)
        if after is None:
            raise ApiError(400, "`starting_after` must be a number.", param="starting_after", code="invalid_value")
        obfuscates = query.get("include_obfuscation") == "true"
        stored = await find_response(service.store, caller.owner, found)
        if stored is None and not await service.runs.is_running(name):
            # Its events may be kept longer than the response, and must not be.
            raise _unknown(found)
        if stored is not None and (stored.is_redacted or not await service.runs.has_events(name)):
            dead = await read_interrupted(service, name, stored) is not None
            events = stored.to_events(interrupted=dead, encrypted=stored.is_encrypted or ENCRYPTED in include)
            return EventStream(pad_stream(_replay(events, after), wanted=obfuscates))
        return EventStream(pad_stream(_stream(service, name, after), wanted=obfuscates))
    stored_or_none = await find_response(service.store, caller.owner, found)
    if stored_or_none is None:
        run = service.runs.find(name)
        if run is None or not run.events:
            raise _unknown(found)
        return json_response(msgspec.json.decode(run.events[0])["response"])
    interrupted = await read_interrupted(service, name, stored_or_none)
    return json_response(interrupted or stored_or_none.to_object(encrypted=ENCRYPTED in include))


async def delete(service: Service, caller: Caller, request: Request) -> Response:
    """Delete a response. A chain whose responses are all deleted is deleted whole."""
    found = _parse_id(request)
    name = RunName(caller.owner, str(found))
    stored = await _find_stored(service, caller, found)
    if stored.turn.status == "running":
        stored = await _cancel(service, caller, found)
    if await stored.delete(service.store, caller.owner):
        await delete_conversation(service, caller.owner, found.conversation)
    await service.runs.delete_events(name)
    return json_response({"id": str(found), "object": "response", "deleted": True})


async def cancel(service: Service, caller: Caller, request: Request) -> Response:
    """End a response that is in progress. What was said is kept."""
    stored = await _cancel(service, caller, _parse_id(request))
    return json_response(stored.to_object())


async def list_input_items(service: Service, caller: Caller, request: Request) -> Response:
    """Return the items that a response was made from."""
    stored = await _find_stored(service, caller, _parse_id(request))
    return json_response(paginate(stored.to_input_items(), read_page_query(request)))


# Inside


async def _cancel(service: Service, caller: Caller, found: ResponseId) -> StoredResponse:
    """End a response, and return what is stored of it."""
    name = RunName(caller.owner, str(found))
    await service.runs.cancel(name)
    has_ended = await service.runs.wait_for_end(name)
    stored = await _find_stored(service, caller, found)
    if has_ended and stored.turn.status == "running":
        await cancel_dead(service, name, stored)
        stored = await _find_stored(service, caller, found)
    return stored


async def _wait(run: Run) -> Item:
    result: Item = await run.wait_for_end()
    return result


async def _repeat(service: Service, name: RunName, given: CreateResponse) -> Response:
    """Return a response that is not stored. Its run may go on in another process."""
    if given.stream:
        return EventStream(pad_stream(_stream(service, name, -1), wanted=given.obfuscates))
    last = b""
    async for _, events in service.runs.follow(name):
        last = events[-1]
    if not _is_answer(last):
        raise interrupted()
    return json_response(msgspec.json.decode(last)["response"])


def _is_answer(event: bytes) -> bool:
    return event.startswith(_ANSWERS)


async def _stream(
    service: Service,
    name: RunName,
    after: int,
    *,
    run: Run | None = None,
    mark_delivered: Callable[[], Awaitable[None]] | None = None,
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a response. `run` is its run in this process, which may have no log."""
    ended = False
    while not ended:
        async for first, events in run.follow(after) if run is not None else service.runs.follow(name, after):
            yield b"".join(map(to_sse, events))
            after, ended = first + len(events) - 1, events[-1].startswith(_ENDS)
        if ended:
            break
        if service.runs.is_stopping:
            # It goes on elsewhere, where the client can follow it from here.
            return
        if not await recover(service, name):
            break
        # Another process goes on with it, or ends it.
        run = None
        await asyncio.sleep(_RECOVERY_SECONDS)
    yield DONE
    if mark_delivered is not None:
        await mark_delivered()


def to_sse(event: bytes) -> bytes:
    """Return an event of a response as a server-sent event, with its type as the event's name."""
    kind = event[9 : event.index(b'"', 9)]
    return b"event: %s\ndata: %s\n\n" % (kind, event)


async def _replay(events: Sequence[bytes], after: int) -> AsyncGenerator[bytes, None]:
    """Yield the events of a response that has ended, made again from the transcript."""
    for number, event in enumerate(events):
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
        raise not_found(f"Response {quote(given)}")
    return found


def _unknown(found: ResponseId) -> ApiError:
    return not_found(f"Response {quote(str(found))}")


ENDPOINTS = (
    ("POST", PATH, create),
    ("GET", PATH, ask_for_upgrade),
    ("GET", PATH + "/{id}", retrieve),
    ("DELETE", PATH + "/{id}", delete),
    ("POST", PATH + "/{id}/cancel", cancel),
    ("GET", PATH + "/{id}/input_items", list_input_items),
)

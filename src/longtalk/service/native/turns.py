"""Turns: start, follow, cancel. A turn goes on if its client goes away, and is found again by its id."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from longtalk._util import typed_json
from longtalk.archive.history import StoredTurn, to_history
from longtalk.branches.branch import AsyncBranch
from longtalk.branches.operations import end_abandoned_turn
from longtalk.errors import NotFound
from longtalk.events import Done, Started
from longtalk.policies import KeepAll
from longtalk.reply import Reply
from longtalk.service.deletion import name_turn_run
from longtalk.service.errors import from_error, interrupted
from longtalk.service.http import EventStream, json_response
from longtalk.service.idempotency import Idempotency, has_answer
from longtalk.service.ids import new_key
from longtalk.service.native import turn_events
from longtalk.service.native.conversations import find_info
from longtalk.service.native.objects import BranchQuery, Name, TurnObject, to_notice, to_turn
from longtalk.service.native.routes import ApiCall, Nothing, Route
from longtalk.service.native.start_turn import GivenTurn, StartTurn, StatelessTurn, check_place, make_order
from longtalk.service.native.talks import find_model
from longtalk.service.native.turn_events import DoneEvent, ErrorEvent, StartedEvent, TurnEvent
from longtalk.service.run import Run, RunName
from longtalk.stores.base import MAIN
from longtalk.turn.stream import AsyncStream

_PURPOSE = "turn"
"""What the states of this surface are sealed for."""


class Follow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a stream goes on."""

    after: Annotated[int, msgspec.Meta(ge=-1, le=2**31)] = -1
    """The number of the last event that has arrived."""
    branch: Name = MAIN


async def start(call: ApiCall[Nothing, StartTurn]) -> Response:
    """Start a turn. With `stream`, the answer is a stream of events, else the complete turn."""
    given, info = call.body, await find_info(call)
    check_place(given)
    owner, runs = call.caller.owner, call.service.runs
    turn, is_new = await _claim(call)
    name = name_turn_run(owner, info.id, turn)
    if not is_new and await runs.is_running(name):
        # The same request runs already, here or in another process.
        return await _answer(runs.follow(name), given)
    settings = await call.archive.settings(info.id, branch=given.branch)
    order = make_order(call, given, find_model(call, given.model, settings, given.policy))
    order = msgspec.structs.replace(
        order,
        conversation=info.id,
        branch=given.branch,
        after=given.after,
        edits=given.edits,
        regenerates=given.regenerates,
        turn=turn,
        key=turn,
        meta=given.meta or None,
    )

    async def play(run: Run) -> None:
        async def read(reply: Any, **more: Any) -> TurnObject:
            found = await call.archive.turn(info.id, reply.turn_id, branch=reply.branch)
            return to_turn(found, info.id, **more)

        await _play(run, await call.service.open_stream(order), read)

    run = await call.service.start_run(name, play, logs=True)
    await run.wait_for_events()
    return await _answer(run.follow(), given)


async def start_stateless(call: ApiCall[Nothing, StatelessTurn]) -> Response:
    """Run a turn that nothing is stored of: it takes a sealed state, and returns the next one."""
    given, service, owner = call.body, call.service, call.caller.owner
    state = None if given.state is None else await service.sealer.open(given.state, owner, _PURPOSE)
    turn, is_new = await _claim(call)
    order = make_order(call, given, find_model(call, given.model, None, given.policy))
    order = msgspec.structs.replace(order, state=state)

    async def play(run: Run) -> None:
        async def read(reply: Reply, **more: Any) -> TurnObject:
            draft = reply._draft
            entries = tuple(to_history(reply.entries, [draft.turn]))
            cost = None if reply.cost is None else reply.cost.total
            found = StoredTurn(turn=draft.turn, branch="", status=draft.turn.status, entries=entries, cost=cost)
            return to_turn(found, state=await service.sealer.close(reply.state, owner, _PURPOSE), **more)

        await _play(run, await service.open_stream(order), read)

    name = RunName(owner, f"stateless/{turn}")
    if not is_new and await has_answer(service.runs, name, turn_events.is_done):
        return await _answer(service.runs.follow(name), given)
    # Nothing is kept, unless the client may ask for the same answer again.
    run = await service.start_run(name, play, logs="idempotency-key" in call.request.headers)
    await run.wait_for_events()
    return await _answer(run.follow(), given)


async def retrieve(call: ApiCall[BranchQuery, Nothing]) -> TurnObject:
    """Return a turn, also while it runs."""
    info = await find_info(call)
    return to_turn(await call.archive.turn(info.id, call.path["turn"], branch=call.query.branch), info.id)


async def follow(call: ApiCall[Follow, Nothing]) -> Response:
    """Follow the events of a turn, from the one after the number `after`."""
    info, turn = await find_info(call), call.path["turn"]
    runs, name = call.service.runs, name_turn_run(call.caller.owner, info.id, turn)
    after = call.query.after
    if after < 0:
        given = call.request.headers.get("last-event-id", "")
        after = int(given) if given.isascii() and given.isdigit() and len(given) < 10 else -1
    if not await runs.has_events(name):
        await call.archive.turn(info.id, turn, branch=call.query.branch)

    async def read() -> AsyncIterator[tuple[int, list[bytes]]]:
        last, ended = after, False
        async for first, events in runs.follow(name, after):
            yield first, events
            last, ended = first + len(events) - 1, turn_events.is_last(events[-1])
        if not ended and not runs.is_stopping:
            # The process that ran the turn has died, or the events are not kept any more: the end has all of it.
            _, log_ended = await runs.read_events(name)
            found = to_turn(await call.archive.turn(info.id, turn, branch=call.query.branch), info.id)
            end = DoneEvent(found) if log_ended else turn_events.to_error(interrupted(), found)
            yield last + 1, [turn_events.encode(end)]

    return EventStream(turn_events.render(read()))


async def cancel(call: ApiCall[BranchQuery, Nothing]) -> TurnObject:
    """End a turn. What was said is kept, and ending it twice changes nothing."""
    info, turn = await find_info(call), call.path["turn"]
    runs, name = call.service.runs, name_turn_run(call.caller.owner, info.id, turn)
    await runs.cancel(name)
    if await runs.wait_for_end(name):
        found = await call.archive.turn(info.id, turn, branch=call.query.branch)
        stored = AsyncBranch(call.service.store, call.caller.owner, info.id, found.branch, KeepAll())
        events, _ = await runs.read_events(name)
        await end_abandoned_turn(stored, turn, turn_events.read_last_text(events))
    return await retrieve(call)


# Inside


async def _claim(call: ApiCall[Any, Any]) -> tuple[str, bool]:
    """Return the id of the turn that a request asks for, and whether the request is a new one."""
    key, owner = call.request.headers.get("idempotency-key", ""), call.caller.owner
    if not key:
        return new_key(), True
    path = f"POST {call.request.url.path}"
    seed = f"{path} {len(owner)}:{owner}{key}"
    claim = await Idempotency(call.service.storage).claim(owner, path, call.data, call.request.headers, new_key(seed))
    return claim.response, claim.is_new


async def _play(run: Run, stream: AsyncStream[Any], read: Callable[..., Any]) -> None:
    """Play a turn, and emit its events. `read` returns the turn of a reply as an object."""
    has_started = False

    def start(turn: str, branch: str = "") -> None:
        nonlocal has_started
        run.emit(turn_events.encode(StartedEvent(turn=turn, branch=branch)))
        has_started = True

    try:
        with run.play(stream):
            async for event in stream:
                if type(event) is Started:
                    start(event.turn, event.branch)
                    continue
                if not has_started:
                    start(stream.reply.turn_id)
                if type(event) is Done:
                    break
                made = turn_events.to_event(event)
                if made is not None:
                    run.emit(turn_events.encode(made))
    except Exception as problem:
        if not has_started:
            raise
        turn = await _read_failed(stream, read)
        run.emit(turn_events.encode(turn_events.to_error(from_error(problem), turn)))
        raise
    reply = stream.reply
    if not has_started:
        start(reply.turn_id)
    notices = [to_notice(notice) for notice in reply.notices]
    run.emit(turn_events.encode(DoneEvent(await read(reply, notices=notices))))


async def _read_failed(stream: AsyncStream[Any], read: Callable[..., Any]) -> TurnObject | None:
    try:
        found: TurnObject = await read(stream.reply)
    except NotFound:
        # It was deleted in the meantime.
        return None
    return found


async def _end_interrupted(pages: AsyncIterator[tuple[int, list[bytes]]]) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Yield the events of a turn, and an error at the end if the process that ran it has died."""
    next_number, last = 0, b""
    async for first, events in pages:
        yield first, events
        next_number, last = first + len(events), events[-1]
    if last and not turn_events.is_last(last):
        yield next_number, [turn_events.encode(turn_events.to_error(interrupted()))]


async def _answer(pages: AsyncIterator[tuple[int, list[bytes]]], given: GivenTurn) -> Response:
    """Answer with a stream, or with the turn when it has ended."""
    if given.stream:
        return EventStream(turn_events.render(_end_interrupted(pages)))
    last = b""
    async for _, events in pages:
        last = events[-1]
    if not turn_events.is_last(last):
        raise interrupted()
    ended: TurnEvent = typed_json.decode(last, TurnEvent)  # type: ignore[arg-type]
    if isinstance(ended, ErrorEvent):
        raise turn_events.from_error(ended)
    assert isinstance(ended, DoneEvent)  # noqa: S101
    return json_response(ended.turn)


_ALL = "/conversations/{conversation}/turns"
_ONE = _ALL + "/{turn}"
_FAILS = (409, 422, 500, 502)
ROUTES: tuple[Route[Any, Any], ...] = (
    Route(
        "POST",
        _ALL,
        start,
        body=StartTurn,
        answer=TurnObject,
        media=("text/event-stream",),
        errors=_FAILS,
        is_keyed=True,
    ),
    Route("GET", _ONE, retrieve, query=BranchQuery, answer=TurnObject),
    Route("GET", _ONE + "/events", follow, query=Follow, media=("text/event-stream",)),
    Route("POST", _ONE + "/cancel", cancel, query=BranchQuery, answer=TurnObject),
    Route(
        "POST",
        "/turns",
        start_stateless,
        body=StatelessTurn,
        answer=TurnObject,
        media=("text/event-stream",),
        errors=_FAILS,
        is_keyed=True,
    ),
)

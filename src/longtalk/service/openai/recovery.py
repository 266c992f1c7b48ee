"""Responses whose process has died: a background one goes on in another process, any other one ends as failed.

What is needed to go on with a background response is parked in the storage while it runs: the request, and where the
response is made. Keys of providers are no part of it. One process at a time takes a run over. It adds to the same event
log, so clients that follow the response see events without a gap. What was being streamed when the process died ends
as incomplete, and is streamed again as a new item.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from longtalk._util import typed_json
from longtalk.branches.branch import AsyncBranch
from longtalk.branches.operations import end_abandoned_turn
from longtalk.policies import KeepAll
from longtalk.service.access import Caller
from longtalk.service.errors import ApiError, describe_for_log, from_error, interrupted
from longtalk.service.ids import parse_response_id
from longtalk.service.openai.client_tools import list_forms
from longtalk.service.openai.compactions import NO_COMPACTIONS
from longtalk.service.openai.create_response import CreateResponse
from longtalk.service.openai.items import Item
from longtalk.service.openai.response_events import ResponseEvents
from longtalk.service.openai.response_turns import Target, play_response
from longtalk.service.openai.stored_responses import StoredResponse, find_response
from longtalk.service.run import Run, RunName
from longtalk.service.service import Service

_SECONDS = 5.0
"""How often it is looked for background responses whose process has died."""
_log = logging.getLogger("longtalk")


class ParkedResponse(msgspec.Struct, frozen=True):
    """A background response that another process can go on with."""

    owner: str
    id: str
    body: bytes
    """The request."""
    after: str | None
    branch: str
    is_new: bool
    known: int = 0
    history: int = 0


def park(owner: str, target: Target, body: bytes) -> bytes:
    """Return what is stored of a background response while it runs."""
    return msgspec.json.encode(
        ParkedResponse(
            owner,
            str(target.id),
            body,
            target.after,
            target.branch,
            target.is_new,
            target.known,
            target.history,
        )
    )


async def recover_all(service: Service) -> None:
    """Go on with background responses whose process has died, as long as the service runs."""
    while True:
        try:
            await _recover_parked(service)
        except Exception as problem:
            _log.warning("responses of other processes can't be checked: %s", describe_for_log(problem))
        await asyncio.sleep(_SECONDS)


async def recover(service: Service, name: RunName) -> bool:
    """Go on with a response if its process has died, or end it. Return False if it has no more events."""
    runs = service.runs
    if await runs.is_running(name):
        return True
    parked = await runs.read_parked(name)
    if parked is not None:
        await _take_over(service, typed_json.decode(parked, ParkedResponse))
        return True
    _, ended = await runs.read_events(name)
    if ended:
        return False
    await _end(service, name, "failed")
    return True


async def read_interrupted(service: Service, name: RunName, stored: StoredResponse) -> Item | None:
    """Return a response whose process has died, with the text that was saved; None if it goes on or has ended."""
    if stored.turn.status != "running" or await service.runs.is_running(name):
        return None
    if await recover(service, name) and await service.runs.is_running(name):
        return None
    events, _ = await service.runs.read_events(name)
    last = msgspec.json.decode(events[-1]) if events else {}
    if last.get("type") == "response.failed":
        found: Item = last["response"]
        return found
    again = await find_response(service.store, name.owner, stored.id)
    return again.to_object(interrupted=True) if again is not None and again.turn.status == "running" else None


async def cancel_dead(service: Service, name: RunName, stored: StoredResponse) -> None:
    """End a response whose process has died, and let no other process go on with it. What was said is kept."""
    await service.runs.forget_parked(name)
    await _end(service, name, "cancelled")
    branch = AsyncBranch(service.store, name.owner, stored.id.conversation, stored.branch, KeepAll())
    sent, _ = await service.runs.read_events(name)
    saved = {item["id"] for item in stored.to_output_items()}
    await end_abandoned_turn(branch, stored.turn.id, _read_unsaved_text(sent, saved))


async def _recover_parked(service: Service) -> None:
    after: str | None = None
    while found := await service.runs.list_parked(after):
        for key, value in found:
            parked = typed_json.decode(value, ParkedResponse)
            if not await service.runs.is_running(RunName(parked.owner, parked.id)):
                await _take_over(service, parked)
            after = key


async def _take_over(service: Service, parked: ParkedResponse) -> None:
    """Go on with a background response in this process, unless another one was faster."""
    name, id_ = RunName(parked.owner, parked.id), parse_response_id(parked.id)
    if id_ is None:
        await service.runs.forget_parked(name)
        return
    target = Target(
        id_,
        True,
        parked.after,
        parked.branch,
        is_new=parked.is_new,
        known=parked.known,
        history=parked.history,
    )

    async def play(run: Run) -> Any:
        stored = await find_response(service.store, parked.owner, target.id)
        if stored is None and run.events:
            # The response was deleted.
            run.emit(*_end_events(run.events, "failed", interrupted()))
            return None
        begun = None
        if stored is not None and run.events:
            encrypted = stored.is_encrypted
            begun = _read_log(run.events, stored.turn.id, encrypted=encrypted)
            # A turn that was complete is streamed again as a whole.
            saved = [] if stored.turn.status == "complete" else stored.to_output_items(encrypted=encrypted)
            run.emit(*begun.resume(run.events, saved))
        try:
            given = msgspec.json.decode(parked.body, type=CreateResponse)
            compactions = stored.compactions if stored is not None else NO_COMPACTIONS
            return await play_response(
                service, Caller(parked.owner), given, target, run, begun=begun, compactions=compactions
            )
        except Exception as problem:
            if begun is not None and not begun.has_ended:
                run.emit(*begun.end("failed", error=from_error(problem)))
            raise

    if await service.take_over_run(name, play, parked=True) is not None:
        _log.info("a background response goes on in this process")


async def _end(service: Service, name: RunName, status: str) -> None:
    """End the event log of a response whose process has died, unless another process was faster."""

    async def play(run: Run) -> None:
        if run.events:
            run.emit(*_end_events(run.events, status, interrupted() if status == "failed" else None))

    run = await service.take_over_run(name, play, parked=False)
    if run is not None:
        await run.wait_for_end()


def _end_events(sent: Sequence[bytes], status: str, error: ApiError | None) -> list[bytes]:
    events = _read_log(sent, "")
    made = events.resume(list(sent), None)
    return made + events.end(status, error=error)


def _read_log(sent: Sequence[bytes], turn: str, *, encrypted: bool = False) -> ResponseEvents:
    """Return a renderer of the response that a log begins with."""
    response = msgspec.json.decode(sent[0])["response"]
    return ResponseEvents(
        response["id"],
        turn,
        model=response["model"],
        echo=response,
        tools=list_forms(response["tools"]),
        created=response["created_at"] * 1000,
        encrypted=encrypted,
    )


def _read_unsaved_text(sent: Sequence[bytes], saved: Collection[str]) -> str:
    """Return the text that was streamed of the last answer, without the items with these ids, which were saved.

    What was streamed before another process has taken the response over was streamed again, and does not count.
    """
    texts: dict[str, str] = {}
    was_cut = False
    for event in map(msgspec.json.decode, sent):
        if event["type"] == "response.output_item.added":
            texts = {} if was_cut else texts
            was_cut = False
        elif event["type"] == "response.output_text.delta" and event["item_id"] not in saved:
            texts[event["item_id"]] = texts.get(event["item_id"], "") + event["delta"]
        elif event["type"] == "response.output_item.done":
            was_cut = event["item"].get("status") == "incomplete"
    return "\n\n".join(texts.values())

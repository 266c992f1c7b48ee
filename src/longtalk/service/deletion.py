"""Deletes conversations and what was said in them, also from the event logs of their turns."""

from __future__ import annotations

from longtalk._util.concurrency import call_store
from longtalk.service.holds import LIFETIME
from longtalk.service.ids import ResponseId
from longtalk.service.run import RunName
from longtalk.service.runs import LOG_LIFETIME
from longtalk.service.service import Service
from longtalk.stores.base import DeletionReceipt, KeyedTurn
from longtalk.transcript.transcript import now


def name_turn_run(owner: str, conversation: str, turn: str) -> RunName:
    """Return the name of the run of a turn that our own surface has started."""
    return RunName(owner, f"turn/{conversation}/{turn}")


async def delete_conversation(service: Service, owner: str, conversation: str) -> DeletionReceipt:
    """Delete a conversation with everything derived from it. Turns that run are cancelled first."""
    runs = service.runs
    active, ended = await _list_recent_runs(service, owner, conversation)
    for name in active:
        await runs.cancel(name)
    for name in active:
        await runs.wait_for_end(name)
    receipt = await service.open_archive(owner).delete(conversation)
    for name in active:
        await runs.forget_parked(name)
    for name in active + ended:
        await runs.delete_events(name)
    return receipt


async def delete_events(service: Service, owner: str, conversation: str) -> None:
    """Delete the event logs of the turns of a conversation that have ended: later they are made from what is stored."""
    _, ended = await _list_recent_runs(service, owner, conversation)
    for name in ended:
        await service.runs.delete_events(name)


async def _list_recent_runs(service: Service, owner: str, conversation: str) -> tuple[list[RunName], list[RunName]]:
    """Return the names under which turns may run, and under which turns have run whose events are still kept."""
    turns: list[KeyedTurn] = await call_store(service.store, lambda: service.store.keyed_turns(owner, conversation))
    since = now() - LOG_LIFETIME - LIFETIME
    active: list[RunName] = []
    ended: list[RunName] = []
    for each in turns:
        key, is_active = each.request.key, each.turn.status == "running"
        if is_active or (each.turn.ended or since) >= since:
            names = [RunName(owner, str(ResponseId(conversation, key))), name_turn_run(owner, conversation, key)]
            (active if is_active else ended).extend(names)
    return active, ended

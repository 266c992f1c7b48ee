"""What a process holds: nothing that another process has taken since is renewed or deleted."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from longtalk.service import holds, runs
from longtalk.service.claims import KIND
from longtalk.service.errors import ApiError
from longtalk.service.event_writer import PARKED
from longtalk.service.holds import LIFETIME, Hold, take_hold
from longtalk.service.limits import SLOT
from longtalk.service.run import Run, RunName
from longtalk.service.runs import Runs
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.transcript.transcript import now


class Clock:
    """The clock of a storage, in milliseconds, which a test sets forward."""

    def __init__(self) -> None:
        self.ahead = 0

    def __call__(self) -> int:
        return now() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage(clock: Clock) -> InMemoryStorage:
    return InMemoryStorage(clock)


def read(storage: InMemoryStorage, kind: str = SLOT, key: str = "a") -> bytes | None:
    found = storage.get(kind, key)
    return found.value if found is not None else None


def make(storage: InMemoryStorage, value: bytes = b"mine") -> Hold:
    return Hold(storage, SLOT, "a", value)


def test_what_is_held_can_not_be_taken_until_it_expires(storage: InMemoryStorage, clock: Clock) -> None:
    first, second = make(storage), make(storage, b"other")
    assert first.take()
    assert not second.take()
    clock.ahead += LIFETIME + 1
    assert second.take()
    clock.ahead = 0
    first.renew()
    assert first.is_lost
    first.release()
    assert read(storage) == b"other"
    second.release()
    assert read(storage) is None


def test_what_has_expired_and_no_one_has_taken_is_held_again(storage: InMemoryStorage, clock: Clock) -> None:
    hold = make(storage)
    hold.take()
    clock.ahead += LIFETIME + 1
    assert read(storage) is None
    clock.ahead = 0
    storage.delete(SLOT, "a")
    hold.renew()
    assert not hold.is_lost
    assert read(storage) == b"mine"


def test_a_renewal_that_comes_after_the_end_leaves_nothing(storage: InMemoryStorage) -> None:
    hold = make(storage)
    hold.take()
    hold.release()
    hold.renew()
    assert read(storage) is None


def test_a_renewal_that_is_under_way_at_the_end_leaves_nothing() -> None:
    class Ending(InMemoryStorage):
        def put(self, *given: Any, **more: Any) -> Any:
            if more.get("expect"):
                hold.release()
            return super().put(*given, **more)

    storage = Ending()
    hold = make(storage)
    hold.take()
    hold.renew()
    assert read(storage) is None


def test_a_hold_that_is_released_while_its_renewal_is_stored_leaves_nothing() -> None:
    stored, go = threading.Event(), threading.Event()

    class Slow(InMemoryStorage):
        def put(self, *given: Any, **more: Any) -> Any:
            found = super().put(*given, **more)
            if more.get("expect"):
                stored.set()
                go.wait(60)
            return found

    storage = Slow()
    hold = make(storage)
    hold.take()
    renewing, releasing = threading.Thread(target=hold.renew), threading.Thread(target=hold.release)
    renewing.start()
    assert stored.wait(60)
    releasing.start()
    releasing.join(0.2)
    go.set()
    renewing.join()
    releasing.join()
    assert read(storage) is None


def test_a_hold_that_was_not_renewed_for_long_is_deleted_only_by_its_version(
    storage: InMemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = make(storage)
    assert not hold.end()
    hold.take()
    assert hold.end()
    monkeypatch.setattr(holds, "LIFETIME", 0)
    assert not hold.end()


def test_what_is_taken_for_a_client_that_leaves_meanwhile_is_given_back(storage: InMemoryStorage) -> None:
    began, go = threading.Event(), threading.Event()

    def take() -> Hold | None:
        began.set()
        go.wait(60)
        hold = make(storage)
        return hold if hold.take() else None

    async def leave() -> None:
        taking = asyncio.ensure_future(take_hold(storage, take))
        await asyncio.to_thread(began.wait, 60)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        go.set()
        await asyncio.gather(*holds._releases)

    asyncio.run(leave())
    assert storage._version == 1
    assert read(storage) is None


def test_a_run_that_another_process_has_taken_over_ends_here_and_leaves_it_all_to_that_one(
    storage: InMemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LIFETIME", 60)
    name = RunName("ada", "resp_1")

    async def lose() -> Run:
        running = Runs(storage)

        async def play(run: Run) -> None:
            run.emit(b"first")
            try:
                await asyncio.sleep(60)
            finally:
                run.emit(b"last")

        slot = make(storage)
        slot.take()
        run = await running.start(name, play, parked=b"parked", slot=slot)
        for kind, key in ((KIND, name.to_key()), (SLOT, "a")):
            storage.put(kind, key, b"other")
        with pytest.raises(ApiError, match="has stopped"):
            await run.wait_for_end()
        await running.stop(0)
        await running.aclose()
        return run

    run = asyncio.run(lose())
    assert read(storage, KIND, name.to_key()) == b"other"
    assert read(storage) == b"other"
    assert read(storage, PARKED, name.to_key()) == b"parked"
    page = storage.read(run.log)
    assert page is None or (page.events, page.ended) == ((b"first",), False)

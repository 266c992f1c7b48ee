"""Storing the events of runs: the size of the calls, and while the storage fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from longtalk.errors import StoreError
from longtalk.service.event_writer import MOST_BYTES, MOST_RUNS
from longtalk.service.run import Run, RunName
from longtalk.service.runs import Runs
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.service.storage.protocol import Append


class Outage(InMemoryStorage):
    """A storage to which no events can be written at first."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = True
        self.tries = 0

    def append_all(self, appends: Sequence[Append], *, delete: Sequence[tuple[str, str]] = ()) -> frozenset[str]:
        self.tries += 1
        if self.is_down:
            raise StoreError("The storage can't be reached.")
        return super().append_all(appends, delete=delete)


def test_events_that_could_not_be_stored_are_tried_again_each_second_and_reach_followers_without_a_new_one() -> None:
    storage, name = Outage(), RunName("ada", "r")
    events = [b"%d" % number for number in range(300)]

    async def check() -> None:
        runs, emitted, go = Runs(storage), asyncio.Event(), asyncio.Event()

        async def play(run: Run) -> None:
            for event in events:
                run.emit(event)
                await asyncio.sleep(0.002)
            emitted.set()
            await go.wait()

        # Its followers get what is stored alone.
        await runs.start(name, play, parked=b"a turn")
        await emitted.wait()
        assert storage.tries <= 5
        storage.is_down = False
        found: list[bytes] = []
        async for _, more in runs.follow(name):
            found += more
            if len(found) == len(events):
                go.set()
        assert found == events
        await runs.stop(1)
        await runs.aclose()

    asyncio.run(asyncio.wait_for(check(), 20))


class Recorder(InMemoryStorage):
    """A storage that records the appends of each call. The call of this number fails."""

    def __init__(self, failing: int) -> None:
        super().__init__()
        self.calls: list[Sequence[Append]] = []
        self.ended: set[str] = set()
        self.has_all = threading.Event()
        self._failing = failing

    def append_all(self, appends: Sequence[Append], *, delete: Sequence[tuple[str, str]] = ()) -> frozenset[str]:
        self.calls.append(appends)
        if len(self.calls) == self._failing:
            raise StoreError("The storage can't be reached.")
        conflicts = super().append_all(appends, delete=delete)
        self.ended |= {append.run for append in appends if append.ended}
        if len(self.ended) == 3 * MOST_RUNS:
            self.has_all.set()
        return conflicts


@pytest.mark.parametrize("failing", [0, 2])
def test_events_of_many_runs_are_stored_once_each_in_calls_of_limited_size(failing: int) -> None:
    storage, events = Recorder(failing), [b"x" * 600, b"y" * 600]

    async def check() -> None:
        runs, go = Runs(storage), asyncio.Event()

        async def play(run: Run) -> None:
            await go.wait()
            run.emit(*events)

        started = [await runs.start(RunName("ada", f"r{number}"), play) for number in range(3 * MOST_RUNS)]
        go.set()
        assert await asyncio.to_thread(storage.has_all.wait, 50)
        for run in started:
            page = storage.read(run.log)
            assert page is not None
            assert (list(page.events), page.ended) == (events, True)
        await runs.stop(20)
        await runs.aclose()

    asyncio.run(asyncio.wait_for(check(), 60))
    assert max(map(len, storage.calls)) <= MOST_RUNS
    assert max(sum(len(event) for append in call for event in append.events) for call in storage.calls) <= MOST_BYTES
    assert len(storage.calls) > 3 * MOST_RUNS * 1_200 / MOST_BYTES

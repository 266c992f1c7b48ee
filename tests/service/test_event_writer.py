"""Storing the events of runs while the storage fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from longtalk.errors import StoreError
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

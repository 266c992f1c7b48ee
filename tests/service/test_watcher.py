"""Messages between the processes of a service."""

from __future__ import annotations

import asyncio
import threading

from longtalk.service.run import RunName
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.service.storage.protocol import LogPage
from longtalk.service.watcher import Watcher


class ReadsTogether(InMemoryStorage):
    """A storage whose next two reads overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.both: threading.Barrier | None = None

    def read(self, run: str, after: int = -1, limit: int = 1000) -> LogPage | None:
        page = super().read(run, after, limit)
        if self.both is not None:
            self.both.wait(20)
        return page


def test_each_request_to_cancel_counts_once_though_reads_overlap() -> None:
    storage, cancelled = ReadsTogether(), list[str]()
    watcher = Watcher(storage, "p", lambda name: cancelled.append(name.id))

    async def read_twice() -> None:
        storage.both = threading.Barrier(2)
        await asyncio.gather(watcher._read_control(), watcher._read_control())
        storage.both = None

    watcher.ask_to_cancel("p", RunName("ada", "1"))
    asyncio.run(read_twice())
    for number in ("2", "3"):
        watcher.ask_to_cancel("p", RunName("ada", number))
        asyncio.run(watcher._read_control())
    assert cancelled == ["1", "2", "3"]

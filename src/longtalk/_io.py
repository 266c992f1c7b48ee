"""The few things that differ between an async and a sync program. The sync twin is `_sync/_io.py`, by hand."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from longtalk._ends import end, widen

if TYPE_CHECKING:
    import anyio
    import anyio.abc
    import httpx2

ASYNC = True


async def sleep(seconds: float) -> None:
    import anyio

    await anyio.sleep(seconds)


async def call(function: Callable[[], Any], *, is_async: bool) -> Any:
    """Call a tool: an async one as it is, a plain one in a thread."""
    return await function() if is_async else await in_thread(function)


async def in_thread(function: Callable[[], Any]) -> Any:
    import anyio.to_thread

    # A cancelled turn does not wait for it: its outcome is then unknown, and the turn says so.
    return await anyio.to_thread.run_sync(function, abandon_on_cancel=True)


async def in_store(store: Any, function: Callable[[], Any]) -> Any:
    """Call a store: by a thread of its own, if it takes one caller at a time."""
    if getattr(store, "serial", False):
        from longtalk._clerk import clerk_of

        clerk = clerk_of(store)
        if clerk is not None:
            return await clerk.do(function)
    return await in_thread(function)


async def completed(jobs: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> AsyncGenerator[None, None]:
    """Run jobs together; yield once for each that has ended. Closing it cancels the rest."""
    import asyncio

    import anyio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        # Trio has no tasks outside a group, and a group must not stay open across a yield.
        async with anyio.create_task_group() as group:
            for job in jobs:
                group.start_soon(job)
        for _ in jobs:
            yield
        return
    running = {asyncio.ensure_future(job()) for job in jobs}
    try:
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
                yield
    finally:
        for task in running:
            task.cancel()
        if running:
            # They may have something to put in order.
            await asyncio.wait(running)


async def within(seconds: float, function: Callable[[], Awaitable[Any]]) -> Any:
    """Wait for something, but not for longer: then it is a `TimeoutError`."""
    import anyio

    with anyio.fail_after(seconds):
        return await function()


class Jobs:
    """Work that goes on while nobody waits for it."""

    def __init__(self) -> None:
        self._running: dict[anyio.Event, object] = {}
        """A task that nobody holds may be collected before its end."""

    def start(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        import asyncio

        import anyio

        ended = anyio.Event()

        async def run() -> None:
            try:
                await job()
            finally:
                ended.set()
                self._running.pop(ended, None)

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            import trio

            self._running[ended] = trio.lowlevel.spawn_system_task(run)
        else:
            self._running[ended] = loop.create_task(run())

    async def wait(self) -> None:
        """Until all of it is done."""
        for ended in list(self._running):
            await ended.wait()


async def shielded(close: Callable[[], Awaitable[Any]]) -> None:
    """Let go of a resource, also while being cancelled, but not for ever."""
    import anyio

    with anyio.move_on_after(5, shield=True):
        await close()


class Child:
    """A program that runs. What it prints comes in pieces, none after None."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process
        self._closed = False

    @staticmethod
    async def start(command: Sequence[str], **settings: Any) -> Child:
        import anyio

        process = await anyio.open_process(command, start_new_session=True, **settings)
        with contextlib.suppress(AttributeError):
            widen(process.stdout._stream._transport.get_extra_info("pipe"))  # type: ignore[union-attr]
        return Child(process)

    async def read(self, seconds: float) -> bytes | None:
        """What it prints next; a `TimeoutError` if that takes longer."""
        import anyio

        out = self._process.stdout
        try:
            with anyio.fail_after(seconds):
                return await out.receive() if out is not None else None
        except anyio.EndOfStream:
            return None

    async def wait(self, seconds: float) -> int:
        """The status that it ends with; a `TimeoutError` if that takes longer."""
        import anyio

        # With its output in other hands it may have ended unheard.
        with anyio.move_on_after(seconds):
            await self._process.wait()
        if self._process.returncode is None:
            raise TimeoutError
        return self._process.returncode

    async def aclose(self) -> None:
        """End it, with all that it has started."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._process.returncode is None:
                end(self._process, hard=False)
                with contextlib.suppress(TimeoutError):
                    await self.wait(2)
        finally:
            # What it has started may outlive it.
            end(self._process, hard=True)
        with contextlib.suppress(TimeoutError):
            await self.wait(2)
        if self._process.stdout is not None:
            await self._process.stdout.aclose()


class ClientHolder:
    """An HTTP client that is made when it is needed, anew for each event loop and process."""

    def __init__(self, client: Any, **settings: Any) -> None:
        self._given = client
        self._settings = settings
        self._made: tuple[object, httpx2.AsyncClient] | None = None

    def get(self) -> Any:
        if self._given is not None:
            return self._given
        import anyio.lowlevel
        import httpx2

        # A forked copy must not speak on the connections of the original: answers would go astray.
        place = (os.getpid(), anyio.lowlevel.current_token())
        if self._made is None or self._made[0] != place or self._made[1].is_closed:
            self._made = (place, httpx2.AsyncClient(**self._settings))
        return self._made[1]

    async def aclose(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            await made[1].aclose()

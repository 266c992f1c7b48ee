"""Everything that differs between the async and the sync version of Longtalk.

The sync twin of this module, in `_sync`, is written by hand; all other twins are generated.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from longtalk._util.processes import enlarge_pipe, terminate

if TYPE_CHECKING:
    import anyio
    import anyio.abc
    import httpx2

ASYNC = True


async def sleep(seconds: float) -> None:
    import anyio

    await anyio.sleep(seconds)


async def call_tool(function: Callable[[], Any], *, is_async: bool) -> Any:
    """Call a tool and return its result. An async function is awaited; any other function runs in a thread."""
    return await function() if is_async else await run_in_thread(function)


async def run_in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a thread and return its result."""
    import anyio.to_thread

    # If the turn is cancelled, it does not wait for the function, whose outcome it reports as unknown.
    return await anyio.to_thread.run_sync(function, abandon_on_cancel=True)


async def call_store(store: Any, function: Callable[[], Any]) -> Any:
    """Run a function that calls `store` in a thread, and return its result.

    If the store says how many calls it serves at a time, threads of its own are used if possible; otherwise any thread.
    """
    from longtalk._util.store_thread import store_threads

    threads = store_threads(store)
    if threads is not None:
        return await threads.run(function)
    return await run_in_thread(function)


async def run_jobs(jobs: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> AsyncGenerator[None, None]:
    """Run jobs concurrently, and yield once for each job that has ended. Closing the generator cancels the others."""
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
            # Cancelled jobs may have to clean up.
            await asyncio.wait(running)


async def run_with_timeout(seconds: float, function: Callable[[], Awaitable[Any]]) -> Any:
    """Await the function and return its result; raise `TimeoutError` if it takes longer than `seconds`."""
    import anyio

    with anyio.fail_after(seconds):
        return await function()


class Jobs:
    """Background jobs that run while the caller continues."""

    def __init__(self) -> None:
        self._running: dict[anyio.Event, object] = {}
        """The running tasks. A task without a reference may be garbage-collected before it ends."""

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
        """Wait until all jobs have ended."""
        for ended in list(self._running):
            await ended.wait()


async def run_shielded(function: Callable[[], Awaitable[Any]]) -> None:
    """Run a function, such as one that closes a resource, to its end even if the current task is cancelled.

    The function is cancelled after five seconds.
    """
    import anyio

    with anyio.move_on_after(5, shield=True):
        await function()


class Child:
    """A running child process whose output is read in pieces."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process
        self._closed = False

    @staticmethod
    async def start(command: Sequence[str], **settings: Any) -> Child:
        import anyio

        process = await anyio.open_process(command, start_new_session=True, **settings)
        with contextlib.suppress(AttributeError):
            enlarge_pipe(process.stdout._stream._transport.get_extra_info("pipe"))  # type: ignore[union-attr]
        return Child(process)

    async def read(self, seconds: float) -> bytes | None:
        """Return the next piece of output, or None at the end of the output.

        Raise `TimeoutError` if no output arrives within `seconds`.
        """
        import anyio

        out = self._process.stdout
        try:
            with anyio.fail_after(seconds):
                return await out.receive() if out is not None else None
        except anyio.EndOfStream:
            return None

    async def wait(self, seconds: float) -> int:
        """Wait for the process to exit and return its exit status; raise `TimeoutError` after `seconds`."""
        import anyio

        # `wait` may not return while another process holds the output open, so check whether the child has exited.
        with anyio.move_on_after(seconds):
            await self._process.wait()
        if self._process.returncode is None:
            raise TimeoutError
        return self._process.returncode

    async def aclose(self) -> None:
        """Terminate the process and all processes that it started."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._process.returncode is None:
                terminate(self._process, hard=False)
                with contextlib.suppress(TimeoutError):
                    await self.wait(2)
        finally:
            # Processes that the child started may still be running.
            terminate(self._process, hard=True)
        with contextlib.suppress(TimeoutError):
            await self.wait(2)
        if self._process.stdout is not None:
            await self._process.stdout.aclose()


class ClientHolder:
    """The HTTP client of a provider: the given one, or one created on first use in each event loop and process."""

    def __init__(self, client: Any, **settings: Any) -> None:
        self._client = client
        self._settings = settings
        self._created: tuple[object, httpx2.AsyncClient] | None = None

    def get(self) -> Any:
        if self._client is not None:
            return self._client
        import anyio.lowlevel
        import httpx2

        # A forked process must not use the connections of its parent: answers could reach the wrong process.
        owner = (os.getpid(), anyio.lowlevel.current_token())
        if self._created is None or self._created[0] != owner or self._created[1].is_closed:
            # A service has many answers open at once. By default, the 101st request would wait until another one ends.
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
            self._created = (owner, httpx2.AsyncClient(limits=limits, **self._settings))
        return self._created[1]

    async def aclose(self) -> None:
        created, self._created = self._created, None
        if created is not None:
            await created[1].aclose()

"""What only an async program has: tasks that are cancelled, tools that run together, two event loops."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import anyio
import pytest

from longtalk import AsyncChat, Chat
from longtalk.errors import ToolError
from longtalk.events import Checkpoint, Text, ToolResult
from longtalk.testing import AsyncScripted, Scripted, says, validate
from tests.support.loopback import Answer, Loopback, sse

CALLS = says(None, calls=[("c1", "one", {}), ("c2", "two", {})])


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def valid_next(state: bytes | None) -> None:
    provider = AsyncScripted(says("ok"))
    await AsyncChat(provider).send("next", state=state)
    validate(provider.requests[0])


@pytest.mark.anyio
async def test_async_tools_run_together() -> None:
    first, second = anyio.Event(), anyio.Event()

    async def one() -> str:
        """Waits for the other."""
        first.set()
        await second.wait()
        return "1"

    async def two() -> str:
        """Waits for the other."""
        second.set()
        await first.wait()
        return "2"

    with anyio.fail_after(10):
        reply = await AsyncChat(AsyncScripted(CALLS, says("ok")), tools=[one, two]).send("x")
    assert reply.text == "ok"


@pytest.mark.anyio
async def test_plain_tools_run_in_threads_together() -> None:
    barrier = threading.Barrier(2, timeout=10)

    def one() -> str:
        """Waits for the other."""
        barrier.wait()
        return str(threading.get_ident())

    def two() -> str:
        """Waits for the other."""
        barrier.wait()
        return str(threading.get_ident())

    events = [e async for e in AsyncChat(AsyncScripted(CALLS, says("ok")), tools=[one, two]).stream("x")]
    names = {e.text for e in events if isinstance(e, ToolResult)}
    assert len(names) == 2
    assert str(threading.get_ident()) not in names


@pytest.mark.anyio
async def test_a_cancelled_turn_keeps_what_was_said_and_done() -> None:
    finished, hang = anyio.Event(), anyio.Event()

    async def one() -> str:
        """Is quick."""
        return "quick"

    async def two() -> str:
        """Never ends."""
        finished.set()
        await hang.wait()
        return ""

    stream = AsyncChat(AsyncScripted(CALLS), tools=[one, two]).stream("x")

    async def consume() -> None:
        async for _ in stream:
            pass

    async with anyio.create_task_group() as group:
        group.start_soon(consume)
        await finished.wait()
        await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    results = {e.native for e in stream.reply.entries if e.role == "tool"}
    assert any(b"quick" in native for native in results)
    assert any(b"Outcome unknown" in native for native in results)
    assert stream.reply.finish_reason == "interrupted"
    await valid_next(stream.reply.state)


@pytest.mark.anyio
async def test_a_send_that_is_cancelled_carries_the_work() -> None:
    hang, started = anyio.Event(), anyio.Event()

    async def one() -> str:
        """Is quick."""
        return "quick"

    async def two() -> str:
        """Never ends."""
        started.set()
        await hang.wait()
        return ""

    caught: list[Any] = []

    async def ask() -> None:
        try:
            await AsyncChat(AsyncScripted(CALLS), tools=[one, two]).send("x")
        except BaseException as problem:
            caught.append(problem)
            raise

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await started.wait()
        await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert caught[0].partial.finish_reason == "interrupted"
    await valid_next(caught[0].state)


@pytest.mark.anyio
async def test_a_cancelled_stream_over_http_lets_go_of_its_connection(loopback: Loopback) -> None:
    release = threading.Event()
    events: Any = says("Once upon a time", pieces=4).events
    loopback.say(Answer(chunks=sse(*events[:3]), then=lambda: release.wait(10)), Answer(says("ok").body))
    async with AsyncChat("compatible:m", base_url=loopback.url) as chat:
        stream = chat.stream("x")

        async def consume(heard: anyio.Event) -> None:
            async for event in stream:
                if isinstance(event, Text) and stream.reply.text == "Once upo":
                    heard.set()

        heard = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(consume, heard)
            await heard.wait()
            group.cancel_scope.cancel()
        assert (stream.reply.text, stream.reply.finish_reason) == ("Once upo", "interrupted")
        assert (await chat.send("y", state=stream.reply.state)).text == "ok"
    release.set()
    validate(loopback.requests[1])


def test_a_quick_result_is_handed_out_while_a_slow_tool_still_runs() -> None:
    async def main() -> None:
        hang = asyncio.Event()

        async def one() -> str:
            """Is quick."""
            return "quick"

        async def two() -> str:
            """Ends when the first result was seen."""
            await hang.wait()
            return "slow"

        seen = []
        async for event in AsyncChat(AsyncScripted(CALLS, says("ok")), tools=[one, two]).stream("x"):
            seen.append(type(event))
            if isinstance(event, Checkpoint) and seen.count(ToolResult) == 1:
                await valid_next(event.state)
                hang.set()
        assert seen.count(ToolResult) == 2

    asyncio.run(asyncio.wait_for(main(), 10))


def test_a_dropped_stream_does_not_disturb_its_task() -> None:
    import gc

    async def main() -> str:
        async for event in AsyncChat(AsyncScripted(says("Once upon"))).stream("x"):
            if isinstance(event, Text):
                break
        gc.collect()
        await asyncio.sleep(0.01)
        return "undisturbed"

    assert asyncio.run(main()) == "undisturbed"


def test_one_chat_serves_one_event_loop_after_another(loopback: Loopback) -> None:
    loopback.say(Answer(says("a").body), Answer(says("b").body))
    chat = AsyncChat("compatible:m", base_url=loopback.url)

    async def ask() -> str:
        reply = await chat.send("x")
        await chat.aclose()
        return reply.text

    assert [asyncio.run(ask()), asyncio.run(ask())] == ["a", "b"]


def test_an_async_tool_is_refused_by_a_sync_chat() -> None:
    async def one() -> str:
        """Is async."""
        return ""

    with pytest.raises(ToolError, match="AsyncChat"):
        Chat(Scripted(), tools=[one])


def test_a_sync_chat_runs_tools_in_the_callers_thread() -> None:
    ran = []

    def one() -> str:
        """Where am I?"""
        ran.append(threading.current_thread())
        return ""

    Chat(Scripted(says(None, calls=[("c", "one", {})]), says("ok")), tools=[one]).send("x")
    assert ran == [threading.current_thread()]


def test_a_forked_copy_has_connections_of_its_own(loopback: Loopback) -> None:
    loopback.say(*[Answer(says("a").body)] * 2)
    chat = Chat("compatible:m", base_url=loopback.url)
    chat.send("x")
    before = chat.provider._client.get()  # type: ignore[attr-defined]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, b"other" if chat.provider._client.get() is not before else b"same")  # type: ignore[attr-defined]
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"other"
    assert chat.provider._client.get() is before  # type: ignore[attr-defined]
    os.close(read)
    os.close(write)
    chat.close()


def test_a_stop_button_in_another_task_stops_the_stream() -> None:
    class Slow(AsyncScripted):
        async def stream(self, body: bytes) -> Any:
            yield b'{"choices":[{"index":0,"delta":{"content":"a"}}]}'
            await gate.wait()
            yield b'{"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}'

    async def main() -> None:
        stream = AsyncChat(Slow()).stream("x")

        begun, events = asyncio.Event(), list[Any]()

        async def read() -> list[Any]:
            async for event in stream:
                events.append(event)
                begun.set()
            return events

        reader = asyncio.create_task(read())
        await begun.wait()
        await stream.aclose()
        gate.set()
        assert [type(event) for event in await reader] == [Text]
        assert (stream.reply.finish_reason, stream.reply.text) == ("interrupted", "a")

    gate = asyncio.Event()
    asyncio.run(main())


def test_a_cancelled_tool_puts_its_things_in_order() -> None:
    log, begun = [], asyncio.Event()

    async def work() -> str:
        """Works."""
        try:
            begun.set()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            log.append("rolled back")
        return ""

    async def main() -> None:
        stream = AsyncChat(AsyncScripted(says(None, calls=[("c", "work", {})])), tools=[work]).stream("x")

        async def read() -> None:
            async with stream:
                async for _ in stream:
                    pass

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert log == ["rolled back"]

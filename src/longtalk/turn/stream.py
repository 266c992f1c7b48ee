"""The stream of a turn: its events, and the reply so far."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Generic, Literal, TypeVar, cast

from longtalk._util.concurrency import run_shielded
from longtalk.errors import InputError
from longtalk.events import Done, Event
from longtalk.notices import Notice
from longtalk.observation import INTERRUPTED, name_error
from longtalk.reply import Reply, TurnReply
from longtalk.turn.draft import Draft
from longtalk.turn.runner import AsyncTurnRunner

R = TypeVar("R", bound=TurnReply)


class AsyncStream(Generic[R]):
    """A running turn: iterate over its events. It is also a context manager.

    If it is closed before the end, `reply` is the reply so far, and the turn is marked as interrupted.
    """

    def __init__(self, runner: AsyncTurnRunner[R], *, handed_in: bytes | None, stream: bool) -> None:
        self._prepare(runner.events(stream=stream), runner=runner, handed_in=handed_in)

    def _prepare(
        self,
        events: AsyncGenerator[Event, None],
        *,
        runner: AsyncTurnRunner[R] | None = None,
        handed_in: bytes | None = None,
    ) -> None:
        self._events = events
        self._runner = runner
        """The runner of the turn; None until the turn begins."""
        self._handed_in = handed_in
        self._reply: R | None = None
        self._ended: Draft | None = None
        """The draft of a turn that has ended, until the draft is saved."""
        self._is_handed_over = False

    @property
    def reply(self) -> R:
        """The reply. While the stream is running, and after it was closed early, the reply has what arrived so far."""
        if self._reply is not None:
            return self._reply
        if self._runner is None:
            raise InputError("The turn has not begun, so there is no reply yet: read an event of the stream first.")
        return self._runner.make_partial_reply()

    def __aiter__(self) -> AsyncStream[R]:
        return self

    async def __anext__(self) -> Event:
        try:
            event = await anext(self._events)
        except StopAsyncIteration:
            self._end("interrupted")
            self._report(INTERRUPTED)
            raise
        except BaseException as problem:
            if self._is_handed_over and self._reply is None and self._runner is not None:
                self._report(INTERRUPTED)
                await run_shielded(self._runner.session.release)
                raise
            self._fail(problem)
            self._report(name_error(problem))
            await self._keep()
            raise
        if self._reply is not None:
            # Another task or thread has closed the stream in the meantime.
            await run_shielded(self._events.aclose)
            raise StopAsyncIteration
        if type(event) is Done:
            self._reply = cast("R", event.reply)
            self._report("")
            # Nothing comes after it, and a generator that is not closed would keep all objects of the turn in a cycle.
            await self._close_events()
        return event

    async def aclose(self) -> None:
        """End the turn now, keeping the answer so far."""
        self._end("interrupted")
        await self._keep()
        await self._close_events()
        self._report(INTERRUPTED)

    def hand_over(self) -> None:
        """Leave the turn to another process, once the task that reads the stream is cancelled.

        The turn is then not ended. The same request can continue it at once, from the last step that was saved.
        """
        self._is_handed_over = True

    async def __aenter__(self) -> AsyncStream[R]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _close_events(self) -> None:
        """Close the generator. If another task or thread is waiting for the next event, it closes it itself."""
        with contextlib.suppress(RuntimeError, ValueError):
            await run_shielded(self._events.aclose)

    async def _keep(self) -> None:
        """Save the end of the turn, if the conversation is in a store."""
        ended, runner = self._ended, self._runner
        if ended is None or runner is None or not runner.session.is_stored:
            return
        notices: list[Notice] = []

        async def save(draft: Draft = ended) -> None:
            notices.extend(await runner.session.save(draft))

        try:
            await run_shielded(save)
        except Exception:
            # The store was unreachable, and saving has waited for it once. Closing the stream must not wait again.
            self._ended = None
            raise
        for notice in notices:
            ended = ended.notice(notice)
        self._ended, self._reply = None, runner.session.make_reply(ended)

    def _report(self, error: str) -> None:
        """Report the end of the turn, if it has begun and was not reported yet."""
        if self._runner is not None:
            self._runner.observer.end_turn(error)

    def _end(self, status: Literal["interrupted", "failed"], error: str = "") -> None:
        if self._reply is None and self._runner is not None:
            self._ended = self._runner.draft.finish(status, error=error)
            self._reply = self._runner.session.make_reply(self._ended)

    def _fail(self, problem: BaseException) -> None:
        """End the turn after an error, and attach the reply so far to the error."""
        failed = isinstance(problem, Exception)
        self._end("failed" if failed else "interrupted", error=f"{type(problem).__name__}: {problem}" if failed else "")
        if self._reply is None or self._runner is None:
            return
        # A caller that catches an error keeps its old state, so no entries may be shed.
        reply = self._runner.session.make_reply(cast("Draft", self._reply._draft))
        # Other errors (Ctrl-C in a tool, a cancelled task) must not lose an answer that was paid for, either.
        with contextlib.suppress(AttributeError):
            problem.partial = reply if reply.worked else None  # type: ignore[attr-defined]
            if isinstance(reply, Reply):
                problem.state = reply.state if reply.worked else self._handed_in  # type: ignore[attr-defined]

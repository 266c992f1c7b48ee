"""Run the tools that a turn calls. Each result is added to the turn's draft as soon as it arrives."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from time import perf_counter
from typing import Any

from longtalk._util.concurrency import call_tool, run_jobs, run_shielded
from longtalk.events import ToolResult
from longtalk.observation import INTERRUPTED, Observer, name_error
from longtalk.tools import ArgumentError, Toolbox, ToolContext, render, render_error
from longtalk.turn.memory import AsyncTurnMemory
from longtalk.turn.progress import AsyncTurnProgress
from longtalk.turn.session import AsyncSession
from longtalk.wires.views import ToolCallView


class AsyncToolRunner:
    """A runner for the tool calls of one turn."""

    def __init__(
        self,
        progress: AsyncTurnProgress,
        tools: Toolbox,
        memory: AsyncTurnMemory,
        session: AsyncSession[Any],
        observer: Observer,
        max_calls: int | None = None,
    ) -> None:
        self._progress = progress
        self._tools = tools
        self._memory = memory
        self._session = session
        self._observer = observer
        self._max_calls = max_calls
        self._calls = 0
        """How many calls of this turn count towards the limit: those of memory cards don't."""
        self._results: list[ToolResult] = []

    async def finish_earlier_calls(self) -> None:
        """Close the calls that an interrupted run left open, but run those of idempotent tools again.

        If the turn continues without a new message, calls that wait for the caller stay open.
        """
        draft = self._progress.draft
        if not draft.earlier:
            return
        calls = [call for call in draft.earlier if draft.message or call.id not in draft.waiting]
        again = [call for call in calls if (tool := self._tools.get(call.name)) is not None and tool.idempotent]
        self._progress.draft = draft.abandon([call for call in calls if call not in again])
        if again:
            await self._progress.save()
        results = self.run_calls(again)
        try:
            async for _ in results:
                await self._progress.save()
        finally:
            await run_shielded(results.aclose)

    def run_calls(self, calls: Sequence[ToolCallView]) -> AsyncGenerator[None, None]:
        """Run the calls concurrently, except those of external tools. Yield each time a result is added to the draft.

        `take_results` returns the new results.
        """
        return run_jobs([self._make_job(call) for call in calls if not self.is_external(call)])

    def is_external(self, call: ToolCallView) -> bool:
        """Return True if the call is of an external tool, which the caller runs."""
        return self._tools.is_external(call.name)

    def take_results(self) -> list[ToolResult]:
        """Return the results that have arrived since this method was last called."""
        results, self._results = self._results, []
        return results

    def _make_job(self, call: ToolCallView) -> Callable[[], Coroutine[Any, Any, None]]:
        async def job() -> None:
            progress = self._progress
            progress.draft = progress.draft.begin_call(call)
            began, error, text = perf_counter(), INTERRUPTED, ""
            try:
                text, error = await self._run(call)
            finally:
                is_known = call.name in self._tools.names or self._memory.is_update(call.name)
                known = call.name if is_known else ""
                self._observer.report_tool(call.id, known, began, error, arguments=call.arguments, result=text)
            failed = bool(error)
            progress.draft = progress.draft.settle(call, text, failed=failed)
            self._results.append(ToolResult(call.id, call.name, text, failed))

        return job

    async def _run(self, call: ToolCallView) -> tuple[str, str]:
        """Run a call.

        Return the text for the model, and the kind of failure that it reports ("" if it reports none).
        """
        if not self._memory.is_update(call.name):
            self._calls += 1
            if self._max_calls is not None and self._calls > self._max_calls:
                return f"Not run: only {self._max_calls} tool calls are allowed. Answer without it.", "limit reached"
        if self._memory.is_recall(call.name):
            text, failed = await self._memory.look_up(self._progress.draft, call)
            return text, "failed" if failed else ""
        if self._memory.is_update(call.name):
            self._progress.draft, text, failed = self._memory.update(self._progress.draft, call)
            return text, "failed" if failed else ""
        tool = self._tools.get(call.name)
        if tool is None:
            names = ", ".join(self._tools.names) or "none"
            return f"There is no tool {call.name!r}. The tools are: {names}.", "unknown tool"
        context = ToolContext(call_id=call.id, turn=self._progress.draft.turn.id, name=call.name)
        try:
            bound = tool.bind(call.arguments, context)
        except ArgumentError as problem:
            return str(problem), name_error(problem)
        try:
            with self._session.run_tool():
                return render(await call_tool(bound, is_async=tool.is_async)), ""
        except Exception as problem:
            return render_error(problem), name_error(problem)

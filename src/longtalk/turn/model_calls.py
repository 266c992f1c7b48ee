"""One model call of a turn, tried again while nothing of an answer has come.

A request that was refused is changed before the next try: it is made shorter, or left without what the server does not
support.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from longtalk._util.concurrency import sleep
from longtalk.context.compose import Piece
from longtalk.errors import ContextOverflow, ProviderError
from longtalk.observation import Observer
from longtalk.providers.base import AsyncProvider
from longtalk.turn import learned
from longtalk.turn.draft import Draft
from longtalk.turn.memory import AsyncTurnMemory
from longtalk.turn.observed_content import note_request
from longtalk.turn.output import OutputType, add_instruction
from longtalk.turn.progress import AsyncTurnProgress
from longtalk.turn.request_builder import AsyncRequestBuilder
from longtalk.turn.sent import note_call
from longtalk.wires.protocol import Quirks

MAX_RETRIES = 2
LESSONS = 5
"""The maximum number of times that a request is changed because the server refused it."""
FIRST_WAIT = 0.5
LONGEST_WAIT = 60.0


class AsyncModelCaller:
    """Sends the requests of a turn."""

    def __init__(
        self,
        progress: AsyncTurnProgress,
        requests: AsyncRequestBuilder,
        memory: AsyncTurnMemory,
        *,
        provider: AsyncProvider,
        options: Mapping[str, Any],
        window: int | None,
        output: OutputType | None,
        max_retries: int,
        observer: Observer,
    ) -> None:
        self._progress = progress
        self._requests = requests
        self._memory = memory
        self._provider = provider
        self._options = options
        self._window = window
        self._output = output
        self._max_retries = max_retries
        self._observer = observer

    async def ask(self, call: Callable[[bytes], Awaitable[Any]], pieces: list[bytes] | None) -> Any:
        """Make a model call; retry it while nothing of an answer has come."""
        progress = self._progress
        tries = lessons = 0
        forgotten = False
        too_long: ContextOverflow | None = None
        failed: ProviderError | None = None
        """The reason why the last request was changed; None if it was not."""
        sent: tuple[Piece, ...] = ()
        while True:
            quirks = learned.read_quirks(progress.draft.transcript, self._provider.label)
            try:
                context, prepared, held = await self._requests.build(quirks, is_refused=too_long is not None)
            except ContextOverflow as problem:
                raise too_long or problem from None
            except ProviderError as problem:
                # Checking or opening the session at the provider has failed.
                await self._wait(problem, tries)
                tries += 1
                continue
            if too_long is not None and context.pieces == sent:
                raise too_long
            with_schema = self.add_schema(quirks)
            options = self._options if with_schema is None else with_schema
            body = self._requests.write_body(context, prepared, options, stream=pieces is not None)
            note = None
            if progress.draft.settings is not None:
                note = note_call(
                    body,
                    prepared,
                    held=held,
                    handle=context.handle,
                    schema=with_schema,
                    is_streamed=pieces is not None,
                )
            progress.draft = progress.draft.ask(context, pieces, note)
            sent = context.pieces
            if failed is not None:
                self._observer.report_retry(failed)
                failed = None
            self._observer.begin_call()
            note_request(self._observer, progress.draft.wire, prepared.preamble.system, context.pieces)
            try:
                with self._observer:
                    return await call(body)
            except ContextOverflow as problem:
                if too_long is not None:
                    raise
                too_long = problem
                # Recalled text is optional.
                draft = self._memory.remove_recalled(progress.draft)
                progress.draft = learned.learn_window(draft, problem, context, self._provider.label, self._window)
                failed = problem
                continue
            except ProviderError as problem:
                if context.handle is not None and not forgotten and progress.draft.wire.is_session_lost(problem.body):
                    forgotten = True
                    failed = problem
                    self._requests.drop_session(context.session_key, str(problem))
                    continue
                # No part of an answer has arrived, because `call` returns at most the first piece.
                if lessons < LESSONS:
                    adapted = learned.learn_quirks(
                        progress.draft, problem, quirks, self._provider.label, has_schema=with_schema is not None
                    )
                    if adapted is not None:
                        progress.draft, lessons, failed = self._instruct(adapted, quirks), lessons + 1, problem
                        continue
                await self._wait(problem, tries)
            tries += 1

    def add_schema(self, quirks: Quirks) -> Mapping[str, Any] | None:
        """Return the options with the schema of the answer, or None if the request has none."""
        if self._output is None or not self._provider.capabilities.structured_output:
            return None
        return self._output.add_options(self._progress.draft.wire, self._options, quirks)

    def _instruct(self, draft: Draft, before: Quirks) -> Draft:
        """Return the draft with an instruction that describes the answer's type, if a schema was refused just now."""
        known = learned.read_quirks(draft.transcript, self._provider.label)
        if self._output is None or before.no_schemas or not known.no_schemas:
            return draft
        return msgspec.structs.replace(draft, instruction=add_instruction(draft.instruction, self._output.instruction))

    async def _wait(self, problem: ProviderError, tries: int) -> None:
        """Wait before the next try. Raise the error instead if the call should not be retried."""
        wait = problem.retry_after if problem.retry_after is not None else _back_off(tries)
        if not problem.retryable or tries >= self._max_retries or wait > LONGEST_WAIT:
            raise problem
        self._observer.report_retry(problem, wait)
        await sleep(wait)


def _back_off(tries: int) -> float:
    return FIRST_WAIT * 2.0**tries * random.uniform(0.75, 1.25)

"""The turn itself, over a provider: ask, run tools, ask again, until there is an answer.

The runner makes the model calls with their retries and yields the events that the caller sees. `request_builder.py`
builds each request, `tool_runner.py` runs the tools. All of them replace the draft (`draft.py`) whole after every step.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from longtalk._util.concurrency import run_shielded, sleep
from longtalk.context.compose import Piece
from longtalk.context.prepare import Recipient
from longtalk.errors import ContextOverflow, ProviderError, StreamCut, TooManyRounds
from longtalk.events import Checkpoint, Done, Event, Reasoning, Text, ToolCall, ToolCallDelta
from longtalk.notices import Notice
from longtalk.observation import Observer
from longtalk.policies import Policy
from longtalk.providers.base import AsyncProvider
from longtalk.reply import TurnReply
from longtalk.tools import Toolbox
from longtalk.turn import learned
from longtalk.turn.draft import Draft, Replay
from longtalk.turn.memory import AsyncTurnMemory
from longtalk.turn.output import RETRIES as OUTPUT_RETRIES
from longtalk.turn.output import OutputType, add_instruction
from longtalk.turn.progress import AsyncTurnProgress
from longtalk.turn.provider_client import AsyncProviderClient
from longtalk.turn.request_builder import AsyncRequestBuilder
from longtalk.turn.session import AsyncSession
from longtalk.turn.tool_runner import AsyncToolRunner
from longtalk.wires.card_tags import CardFilter
from longtalk.wires.protocol import Quirks

R = TypeVar("R", bound=TurnReply)
MAX_RETRIES = 2
LESSONS = 5
"""How often a request may be changed to what a server takes."""
FIRST_WAIT = 0.5
LONGEST_WAIT = 60.0


class AsyncTurnRunner(Generic[R]):
    """A turn under way. `draft` is always whole: see `draft.py`."""

    def __init__(
        self,
        draft: Draft,
        session: AsyncSession[R],
        *,
        provider: AsyncProvider,
        tools: Toolbox,
        recipient: Recipient,
        policy: Policy,
        options: Mapping[str, Any],
        max_rounds: int,
        window: int | None = None,
        output: OutputType | None = None,
        max_retries: int = MAX_RETRIES,
        observer: Observer,
    ) -> None:
        self.session = session
        self._progress = AsyncTurnProgress(draft, session)
        self._memory = AsyncTurnMemory(policy, draft.transcript, recipient, tools, session)
        self._requests = AsyncRequestBuilder(
            self._progress,
            self._memory,
            provider=provider,
            recipient=recipient,
            policy=policy,
            options=options,
            window=window,
            observer=observer,
        )
        self._tools = AsyncToolRunner(self._progress, tools, self._memory, session, observer)
        self._provider = provider
        self._client = AsyncProviderClient(provider)
        self._options = options
        self._max_rounds = max_rounds
        self._window = window
        self._output = output
        self._max_retries = max_retries
        self._observer = observer
        self._reported = 0
        """How many of the draft's notices were yielded as events."""
        self._replay: Replay | None = None

    @property
    def draft(self) -> Draft:
        """The newest draft of the turn."""
        return self._progress.draft

    @draft.setter
    def draft(self, draft: Draft) -> None:
        self._progress.draft = draft

    async def events(self, *, stream: bool) -> AsyncGenerator[Event, None]:
        """Play the turn to its end."""
        self._requests.report_failed_summary()
        await self._tools.finish_earlier_calls()
        for result in self._tools.take_results():
            yield result
            for checkpoint in self._make_checkpoints():
                yield checkpoint
        self.draft = self.draft.add_message()
        await self._progress.save()
        rounds = refused = 0
        # What is open now, or after the tools have run, waits for results of the caller.
        waiting = self.draft.open_calls()
        for call in waiting:
            yield ToolCall(call.id, call.name, call.arguments)
        while not waiting:
            if stream:
                pieces: list[bytes] = []
                accumulator = self.draft.wire.new_accumulator()
                deltas = accumulator.deltas
                cards = CardFilter() if self._memory.is_active else None
                first, source = await self._ask(self._client.open, pieces)
                with self._observer, self._client.redactor:
                    try:
                        for notice in self._take_notices():
                            yield notice
                        while True:
                            try:
                                data = first.pop(0) if first else await anext(source, None)
                            except ProviderError:
                                # What breaks after the end of an answer does not take it away.
                                if not accumulator.done:
                                    raise
                                break
                            if data is None:
                                break
                            # First kept, then understood: whatever happens in between, nothing is lost.
                            pieces.append(data)
                            try:
                                text = accumulator.feed(data)
                            except ValueError as problem:
                                raise self._client.misread(problem, data) from None
                            if deltas.new:
                                for delta in self._show_deltas(deltas.take()):
                                    yield delta
                            if cards is not None and not (cards.is_idle and "<" not in text):
                                text = cards.feed(text)
                            if text:
                                yield Text(text)
                    finally:
                        await run_shielded(source.aclose)
                if cards is not None and (rest := cards.end()):
                    yield Text(rest)
                with self._observer:
                    if not accumulator.done:
                        raise StreamCut(f"The stream of {self._provider.label} ended in the middle of an answer.")
                    answer = self._client.understand(accumulator.answer)
                self._observer.end_call(answer.usage)
                self.draft = self._memory.apply_cards(self.draft.add_answer(answer))
            else:
                body = await self._ask(self._client.send, None)
                with self._observer:
                    answer = self._client.understand(self.draft.wire.parse, body)
                self._observer.end_call(answer.usage)
                self.draft = self._memory.apply_cards(self.draft.add_answer(answer))
                for notice in self._take_notices():
                    yield notice
            calls = self.draft.open_calls()
            paused = self.draft.answer is not None and self.draft.answer.finish == "paused"
            if not calls and not paused:
                if self._output is None:
                    break
                self.draft = self._output.check(self.draft, last=refused == OUTPUT_RETRIES)
                if self.draft.output is not None:
                    break
                refused += 1
                await self._progress.save()
                for notice in self._take_notices():
                    yield notice
                for checkpoint in self._make_checkpoints():
                    yield checkpoint
                continue
            for call in calls:
                if not self._memory.is_update(call.name):
                    yield ToolCall(call.id, call.name, call.arguments)
            if rounds == self._max_rounds and not all(map(self._tools.is_external, calls)):
                raise TooManyRounds(f"The model still calls tools after {rounds} rounds: raise max_rounds, or go on.")
            rounds += 1
            await self._progress.save()
            for checkpoint in self._make_checkpoints():
                yield checkpoint
            # A provider that runs tools of its own may take a breath: it goes on when it is asked again.
            if paused:
                continue
            results = self._tools.run_calls(calls)
            try:
                async for _ in results:
                    fresh = self._tools.take_results()
                    await self._progress.save()
                    for result in fresh:
                        if not self._memory.is_update(result.name):
                            yield result
                        for checkpoint in self._make_checkpoints():
                            yield checkpoint
            finally:
                await run_shielded(results.aclose)
            waiting = self.draft.open_calls()
        # With open calls, the exchange goes on in the next turn: nothing of it may be left out, and a card may come.
        draft = self.draft if waiting else self._memory.count_card_request(self.draft)
        self.draft = draft.finish("complete")
        later_summary = None if waiting else self._requests.plan_next_turn(background=self.session.is_stored)
        await self._progress.save()
        if later_summary is not None:
            self.session.start_summary(*later_summary)
        for notice in self._take_notices():
            yield notice
        yield Done(self.session.make_reply(self.draft, is_complete=True))

    def make_partial_reply(self) -> R:
        """Return the reply as it would be if the turn were interrupted now."""
        draft = self.draft
        if draft.running and draft.pieces is not None:
            if self._replay is None or self._replay.pieces is not draft.pieces:
                self._replay = Replay(draft)
            draft = draft.cut_stream(self._replay.answer())
        return self.session.make_reply(draft.finish("interrupted"))

    def _show_deltas(self, deltas: list[Reasoning | ToolCallDelta]) -> list[Reasoning | ToolCallDelta]:
        """Return the pieces without those of calls that only memory sees."""
        return [delta for delta in deltas if isinstance(delta, Reasoning) or not self._memory.is_update(delta.name)]

    # Model calls

    async def _ask(self, call: Callable[[bytes], Awaitable[Any]], pieces: list[bytes] | None) -> Any:
        """Make a model call; retry it while nothing of an answer has come."""
        tries = lessons = 0
        forgotten = False
        too_long: ContextOverflow | None = None
        failed: ProviderError | None = None
        """Why the last request was changed, if it was."""
        sent: tuple[Piece, ...] = ()
        while True:
            quirks = learned.read_quirks(self.draft.transcript, self._provider.label)
            try:
                context, preamble = await self._requests.build(quirks)
            except ContextOverflow as problem:
                raise too_long or problem from None
            except ProviderError as problem:
                # The provider that keeps the conversation could not be asked about it.
                await self._wait(problem, tries)
                tries += 1
                continue
            if too_long is not None and context.pieces == sent:
                raise too_long
            options = self.draft.wire.session_options(self._options, context.handle)
            with_schema = self._add_schema(options, quirks)
            body = self.draft.wire.build_request(
                model=self._provider.model,
                preamble=preamble,
                pieces=context.pieces,
                mark=context.mark,
                options=options if with_schema is None else with_schema,
                quirks=self.draft.wire.quirks_for(self._options, quirks),
                stream=pieces is not None,
            )
            self.draft = self.draft.ask(context, pieces)
            sent = context.pieces
            if failed is not None:
                self._observer.report_retry(failed)
                failed = None
            self._observer.begin_call()
            try:
                with self._observer:
                    return await call(body)
            except ContextOverflow as problem:
                if too_long is not None:
                    raise
                too_long = problem
                # Recalled text is optional.
                self.draft = self._memory.remove_recalled(self.draft)
                self.draft = learned.learn_window(self.draft, problem, context, self._provider.label, self._window)
                failed = problem
                continue
            except ProviderError as problem:
                if context.handle is not None and not forgotten and self.draft.wire.is_session_lost(problem.body):
                    forgotten = True
                    failed = problem
                    self._requests.drop_session(context.session_key, str(problem))
                    continue
                # Nothing of an answer has come yet: `call` gives at most the first piece.
                if lessons < LESSONS:
                    adapted = learned.learn_quirks(
                        self.draft, problem, quirks, self._provider.label, has_schema=with_schema is not None
                    )
                    if adapted is not None:
                        self.draft, lessons, failed = self._instruct(adapted, quirks), lessons + 1, problem
                        continue
                await self._wait(problem, tries)
            tries += 1

    def _add_schema(self, options: Mapping[str, Any], quirks: Quirks) -> Mapping[str, Any] | None:
        """Return the options with the schema of the answer, or None if the request has none."""
        if self._output is None or not self._provider.capabilities.structured_output:
            return None
        return self._output.add_options(self.draft.wire, options, quirks)

    def _instruct(self, draft: Draft, before: Quirks) -> Draft:
        """Return a draft with an instruction for the form of the answer, if a schema has just been refused."""
        known = learned.read_quirks(draft.transcript, self._provider.label)
        if self._output is None or before.no_schemas or not known.no_schemas:
            return draft
        return msgspec.structs.replace(draft, instruction=add_instruction(draft.instruction, self._output.instruction))

    async def _wait(self, problem: ProviderError, tries: int) -> None:
        """Wait before a call is made again; raise what went wrong if it is not."""
        wait = problem.retry_after if problem.retry_after is not None else _back_off(tries)
        if not problem.retryable or tries >= self._max_retries or wait > LONGEST_WAIT:
            raise problem
        self._observer.report_retry(problem, wait)
        await sleep(wait)

    def _take_notices(self) -> list[Notice]:
        """Return the notices that were not yielded yet."""
        new = self.draft.notices[self._reported :]
        self._reported += len(new)
        return list(new)

    def _make_checkpoints(self) -> list[Checkpoint]:
        """Return a checkpoint of the turn, in a list that is empty if the store has what is needed to resume it."""
        self.draft = self.draft.checkpoint()
        checkpoint = self.session.make_checkpoint(self.draft.transcript)
        return [] if checkpoint is None else [checkpoint]


def _back_off(tries: int) -> float:
    return FIRST_WAIT * 2.0**tries * random.uniform(0.75, 1.25)

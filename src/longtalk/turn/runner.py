"""The turn: call the model, run the tools that it calls, and call it again until it answers.

The runner yields the events that the caller sees. `request_builder.py` builds each request, `model_calls.py` sends it,
with retries, and `tool_runner.py` runs the tools. Each step replaces the draft (`draft.py`) as a whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from longtalk._util.concurrency import run_shielded
from longtalk.context.compose import Context
from longtalk.context.epochs import Epoch
from longtalk.context.prepare import Prepared
from longtalk.context.recipient import Recipient
from longtalk.errors import ProviderError, StreamCut, TooManyRounds
from longtalk.events import (
    Checkpoint,
    Compacted,
    Done,
    Event,
    PartEnd,
    Reasoning,
    Started,
    Text,
    ToolCall,
    ToolCallDelta,
)
from longtalk.notices import Notice
from longtalk.observation import Observer
from longtalk.policies.base import Rules
from longtalk.providers.base import AsyncProvider
from longtalk.reply import TurnReply
from longtalk.tools import Toolbox
from longtalk.turn import learned
from longtalk.turn.draft import Draft
from longtalk.turn.memory import AsyncTurnMemory
from longtalk.turn.model_calls import MAX_RETRIES, AsyncModelCaller
from longtalk.turn.observed_content import note_answer
from longtalk.turn.output import RETRIES as OUTPUT_RETRIES
from longtalk.turn.output import OutputType
from longtalk.turn.partial_answer import PartialAnswer
from longtalk.turn.progress import AsyncTurnProgress
from longtalk.turn.provider_client import AsyncProviderClient
from longtalk.turn.request_builder import AsyncRequestBuilder
from longtalk.turn.session import AsyncSession
from longtalk.turn.tool_runner import AsyncToolRunner
from longtalk.wires.card_tags import CardFilter
from longtalk.wires.deltas import Delta
from longtalk.wires.protocol import Accumulator

R = TypeVar("R", bound=TurnReply)


class AsyncTurnRunner(Generic[R]):
    """A running turn. Its `draft` is complete at any moment: see `draft.py`."""

    def __init__(
        self,
        draft: Draft,
        session: AsyncSession[R],
        *,
        provider: AsyncProvider,
        tools: Toolbox,
        recipient: Recipient,
        rules: Rules,
        options: Mapping[str, Any],
        max_rounds: int,
        max_tool_calls: int | None = None,
        window: int | None = None,
        output: OutputType | None = None,
        max_retries: int = MAX_RETRIES,
        observer: Observer,
    ) -> None:
        self.session = session
        self._progress = AsyncTurnProgress(draft, session)
        self._memory = AsyncTurnMemory(rules, draft.transcript, recipient, tools, session)
        self._requests = AsyncRequestBuilder(
            self._progress,
            self._memory,
            provider=provider,
            recipient=recipient,
            rules=rules,
            options=options,
            window=window,
            observer=observer,
        )
        self._calls = AsyncModelCaller(
            self._progress,
            self._requests,
            self._memory,
            provider=provider,
            options=options,
            window=window,
            output=output,
            max_retries=max_retries,
            observer=observer,
        )
        self._tools = AsyncToolRunner(self._progress, tools, self._memory, session, observer, max_tool_calls)
        self._provider = provider
        self._client = AsyncProviderClient(provider)
        self._options = options
        self._max_rounds = max_rounds
        self._output = output
        self.observer = observer
        self._reported = 0
        """The number of the draft's notices that were already yielded as events."""
        self._partial: PartialAnswer | None = None

    @property
    def draft(self) -> Draft:
        """The newest draft of the turn."""
        return self._progress.draft

    @draft.setter
    def draft(self, draft: Draft) -> None:
        self._progress.draft = draft

    async def events(self, *, stream: bool, announce: bool = False) -> AsyncGenerator[Event, None]:
        """Play the turn to its end. With `announce`, say when its message is saved."""
        progress = self._progress
        self._requests.report_failed_summary()
        await self._tools.finish_earlier_calls()
        for result in self._tools.take_results():
            yield result
            for checkpoint in self._make_checkpoints():
                yield checkpoint
        progress.draft = progress.draft.add_message()
        await progress.save()
        if announce:
            yield Started(progress.draft.turn.id, self.session.branch, progress.draft.turn.started)
        rounds = refused = 0
        # What is open now, or after the tools have run, waits for results of the caller.
        waiting = progress.draft.open_calls()
        for call in waiting:
            yield ToolCall(call.id, call.name, call.arguments)
        while not waiting:
            if stream:
                pieces: list[bytes] = []
                accumulator = progress.draft.wire.new_accumulator()
                deltas = accumulator.deltas
                cards = CardFilter() if self._memory.is_active else None
                ends: list[PartEnd] = []
                first, source = await self._calls.ask(self._client.open, pieces)
                with self.observer.watch(partial(_read_cut_usage, accumulator)), self._client.redactor:
                    try:
                        for report in self._take_reports():
                            yield report
                        while True:
                            try:
                                data = first.pop(0) if first else await anext(source, None)
                            except ProviderError:
                                # An error after the end of the answer does not invalidate the answer.
                                if not accumulator.done:
                                    raise
                                break
                            if data is None:
                                break
                            # Keep the data before parsing it, so that nothing is lost whatever happens in between.
                            pieces.append(data)
                            try:
                                text = accumulator.feed(data)
                            except ValueError as problem:
                                raise self._client.misread(problem, data) from None
                            call_pieces: list[ToolCallDelta] = []
                            if deltas.new:
                                for reasoning in self._sort_deltas(deltas.take(), ends, call_pieces):
                                    yield reasoning
                            if cards is not None and not (cards.is_idle and "<" not in text):
                                text = cards.feed(text)
                            if text:
                                yield Text(text)
                            if ends and (cards is None or cards.is_idle):
                                for end in ends:
                                    yield end
                                ends.clear()
                            for piece in call_pieces:
                                yield piece
                    finally:
                        await run_shielded(source.aclose)
                if cards is not None and (rest := cards.end()):
                    yield Text(rest)
                for end in ends:
                    yield end
                with self.observer:
                    if not accumulator.done:
                        raise StreamCut(f"The stream of {self._provider.label} ended before the answer was complete.")
                    answer = self._client.understand(accumulator.answer)
                note_answer(self.observer, answer)
                self.observer.end_call(answer.usage)
                progress.draft = self._memory.apply_cards(progress.draft.add_answer(answer))
            else:
                body = await self._calls.ask(self._client.send, None)
                with self.observer:
                    answer = self._client.understand(progress.draft.wire.parse, body)
                note_answer(self.observer, answer)
                self.observer.end_call(answer.usage)
                progress.draft = self._memory.apply_cards(progress.draft.add_answer(answer))
                for report in self._take_reports():
                    yield report
            calls = progress.draft.open_calls()
            paused = progress.draft.answer is not None and progress.draft.answer.finish == "paused"
            if not calls and not paused:
                if self._output is None:
                    break
                progress.draft = self._output.check(progress.draft, last=refused == OUTPUT_RETRIES)
                if progress.draft.output is not None:
                    break
                refused += 1
                await progress.save()
                for report in self._take_reports():
                    yield report
                for checkpoint in self._make_checkpoints():
                    yield checkpoint
                continue
            for call in calls:
                if not self._memory.is_update(call.name):
                    yield ToolCall(call.id, call.name, call.arguments)
            if rounds == self._max_rounds and not all(map(self._tools.is_external, calls)):
                raise TooManyRounds(
                    f"The model still calls tools after {rounds} rounds: raise `max_rounds`, or continue with `resume`."
                )
            rounds += 1
            await progress.save()
            for checkpoint in self._make_checkpoints():
                yield checkpoint
            # A provider that runs its own tools may pause: it continues with the next request.
            if paused:
                continue
            results = self._tools.run_calls(calls)
            try:
                async for _ in results:
                    fresh = self._tools.take_results()
                    await progress.save()
                    for result in fresh:
                        if not self._memory.is_update(result.name):
                            yield result
                        for checkpoint in self._make_checkpoints():
                            yield checkpoint
            finally:
                await run_shielded(results.aclose)
            waiting = progress.draft.open_calls()
        # With open calls, the exchange goes on in the next turn: nothing of it may be left out, and a card may come.
        if not waiting:
            await self._requests.request_card()
        draft = progress.draft if waiting else self._memory.count_card_request(progress.draft)
        progress.draft = draft.finish("complete")
        later_summary = None if waiting else self._requests.plan_next_turn(background=self.session.is_stored)
        await progress.save()
        if later_summary is not None:
            self.session.start_summary(*later_summary)
        for report in self._take_reports():
            yield report
        yield Done(self.session.make_reply(progress.draft, is_complete=True))

    async def count_tokens(self) -> int:
        """Return the number of tokens that the first request would have. Nothing is sent or saved."""
        return (await self._preview())[0].tokens

    async def preview(self) -> tuple[Context, bytes]:
        """Return the first request, and its JSON as `stream` would send it. Nothing is sent or saved."""
        context, prepared = await self._preview()
        with_schema = self._calls.add_schema(prepared.recipient.quirks)
        return context, self._requests.write_body(context, prepared, with_schema or self._options, stream=True)

    async def _preview(self) -> tuple[Context, Prepared]:
        draft = self.draft
        calls = [call for call in draft.earlier if draft.message or call.id not in draft.waiting]
        self.draft = draft.abandon(calls).add_message()
        return await self._requests.preview(learned.read_quirks(self.draft.transcript, self._provider.label))

    async def compact(self) -> Epoch:
        """Shorten what comes before this turn to the targets of the policy. Return the new epoch. Nothing is saved."""
        self.draft = msgspec.structs.replace(self.draft, message=(), tail=self.draft.transcript.tail)
        return await self._requests.compact(learned.read_quirks(self.draft.transcript, self._provider.label))

    def make_partial_reply(self) -> R:
        """Return the reply as it would be if the turn were interrupted now."""
        draft = self._progress.draft
        if draft.running and draft.pieces is not None:
            if self._partial is None or self._partial.pieces is not draft.pieces:
                self._partial = PartialAnswer(draft.pieces, draft.wire)
            draft = draft.cut_stream(self._partial.answer())
        return self.session.make_reply(draft.finish("interrupted"))

    def _sort_deltas(self, deltas: list[Delta], ends: list[PartEnd], calls: list[ToolCallDelta]) -> list[Reasoning]:
        """Return the reasoning among the deltas, and add the others to the lists, as they come after the text.

        Some of the text may be held back, and the ends of parts with it. Memory's own calls are left out.
        """
        shown: list[Reasoning] = []
        for delta in deltas:
            if isinstance(delta, PartEnd):
                ends.append(delta.without_cards() if self._memory.is_active else delta)
            elif isinstance(delta, Reasoning):
                shown.append(delta)
            elif not self._memory.is_update(delta.name):
                calls.append(delta)
        return shown

    def _take_reports(self) -> list[Notice | Compacted]:
        """Return the notices, and the epochs with a summary, that were not yielded yet."""
        new = self._progress.draft.notices[self._reported :]
        self._reported += len(new)
        compacted, self._requests.compacted = self._requests.compacted, []
        return [*new, *compacted]

    def _make_checkpoints(self) -> list[Checkpoint]:
        """Return a checkpoint of the turn, in a list that is empty if the store has what is needed to resume it."""
        draft = self._progress.draft = self._progress.draft.checkpoint()
        checkpoint = self.session.make_checkpoint(draft.transcript)
        return [] if checkpoint is None else [checkpoint]


def _read_cut_usage(accumulator: Accumulator) -> bytes | None:
    """Return the usage that the provider has reported of an answer that was cut off; None if it is unknown."""
    with contextlib.suppress(Exception):
        return accumulator.answer(interrupted=True).usage or None
    return None

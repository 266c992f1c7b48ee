"""The turn itself, over a provider: ask, run tools, ask again, until there is an answer.

All that is decided lives in the draft (`draft.py`), which is replaced whole after every step. Here is what takes
time: model calls with their retries, tools, and the events that tell a caller about it.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from longtalk._util.concurrency import call as call_tool
from longtalk._util.concurrency import completed, shielded, sleep
from longtalk.context.compose import Context, Piece, compose
from longtalk.context.epochs import Epoch, list_kept_suffixes, summed_up, windows
from longtalk.context.measure import Terms
from longtalk.context.planning import Plan, begun, plan
from longtalk.errors import ContextOverflow, ProviderError, StreamCut, TooManyRounds
from longtalk.events import Checkpoint, Done, Event, Text, ToolCall, ToolResult
from longtalk.memory.summary import SummaryRequest
from longtalk.notices import Notice
from longtalk.policies import Policy
from longtalk.providers.base import AsyncProvider, AsyncStatefulProvider
from longtalk.reply import Reply, Shed
from longtalk.tokens import of_message, of_preamble
from longtalk.tools import ArgumentError, Toolbox, ToolContext, render
from longtalk.tools import failure as tool_failure
from longtalk.transcript.transcript import Transcript, now
from longtalk.turn import learned, provider_sessions, summary_claims
from longtalk.turn.draft import Draft, Replay
from longtalk.turn.memory import AsyncTurnMemory
from longtalk.turn.provider_client import AsyncProviderClient
from longtalk.turn.provider_sessions import ProviderSession
from longtalk.turn.summarizer import AsyncSummarizer
from longtalk.turn.summary_claims import SummaryClaim
from longtalk.wires.card_tags import CardFilter
from longtalk.wires.options import answer_token_limit
from longtalk.wires.protocol import Handle, Preamble, Quirks
from longtalk.wires.views import ToolCallView

if TYPE_CHECKING:
    from longtalk.memory.recall.config import Recall
    from longtalk.memory.recall.index import RecallIndex

RETRIES = 2
LESSONS = 5
"""How often a request may be changed to what a server takes."""
FIRST_WAIT = 0.5
LONGEST_WAIT = 60.0


class AsyncTurnRunner:
    """A turn under way. `draft` is always whole: see `draft.py`."""

    def __init__(
        self,
        draft: Draft,
        *,
        provider: AsyncProvider,
        tools: Toolbox,
        preamble: Preamble,
        policy: Policy,
        options: Mapping[str, Any],
        max_rounds: int,
        window: int | None = None,
        encode: Callable[[Transcript], bytes],
        shed: Shed | None = None,
        save: Callable[[Draft], Awaitable[tuple[Notice, ...]]] | None = None,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        later: Callable[[AsyncSummarizer, SummaryClaim], None] | None = None,
        seek: Callable[[str, Recall, int], Awaitable[RecallIndex]] | None = None,
    ) -> None:
        self.draft = draft
        self._saver = save
        self._later = later
        """Takes a summary on that is to be made while nobody waits."""
        self._around = around
        """What holds while a tool runs."""
        self._provider = provider
        self._line = AsyncProviderClient(provider)
        self._tools = tools
        self._preamble = preamble
        self._policy = policy
        self._options = options
        self._max_rounds = max_rounds
        self._window = window
        self.encode = encode
        self._shed = shed
        self._memory = AsyncTurnMemory(policy, draft.transcript, provider, tools, seek)
        self._preamble_tokens = of_preamble(preamble.system, preamble.tools, draft.counter)
        self._results: list[ToolResult] = []
        self._told = 0
        self._replay: Replay | None = None
        self._opened: Handle | None = None
        """A conversation that was begun with the provider, until something is said in it."""

    async def events(self, *, stream: bool) -> AsyncGenerator[Event, None]:
        """Play the turn to its end."""
        self._tell_of_attempt()
        await self._settle_earlier()
        for result in self._fresh_results():
            yield result
            yield self._checkpoint()
        self.draft = self.draft.hear()
        await self._save()
        rounds = 0
        while True:
            if stream:
                pieces: list[bytes] = []
                accumulator = self.draft.wire.accumulator()
                cards = CardFilter()
                waiting, source = await self._ask(self._line.open, pieces)
                try:
                    for notice in self._news():
                        yield notice
                    while True:
                        try:
                            data = waiting.pop(0) if waiting else await anext(source, None)
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
                            raise self._line.misread(problem, data) from None
                        if not cards.calm or "<" in text:
                            text = cards.feed(text)
                        if text:
                            yield Text(text)
                finally:
                    await shielded(source.aclose)
                if rest := cards.end():
                    yield Text(rest)
                if not accumulator.done:
                    raise StreamCut(f"The stream of {self._provider.label} ended in the middle of an answer.")
                self.draft = self._memory.heard(self.draft.answered(self._line.understand(accumulator.answer)))
            else:
                body = await self._ask(self._line.send, None)
                answer = self._line.understand(self.draft.wire.parse, body)
                self.draft = self._memory.heard(self.draft.answered(answer))
                for notice in self._news():
                    yield notice
            calls = self.draft.open_calls()
            paused = self.draft.answer is not None and self.draft.answer.finish == "paused"
            if not calls and not paused:
                break
            for call in calls:
                yield ToolCall(call.id, call.name, call.arguments)
            if rounds == self._max_rounds:
                raise TooManyRounds(f"The model still calls tools after {rounds} rounds: raise max_rounds, or go on.")
            rounds += 1
            await self._save()
            yield self._checkpoint()
            # A provider that runs tools of its own may take a breath: it goes on when it is asked again.
            if paused:
                continue
            results = completed([self._job(call) for call in calls])
            try:
                async for _ in results:
                    fresh = self._fresh_results()
                    await self._save()
                    for result in fresh:
                        yield result
                        yield self._checkpoint()
            finally:
                await shielded(results.aclose)
        self.draft = self._memory.counted(self.draft).finish("complete")
        claimed = self._look_back()
        await self._save()
        if claimed is not None and self._later is not None:
            self._later(*claimed)
        for notice in self._news():
            yield notice
        # Only a turn that ended well sheds: whoever holds an earlier state still has it all.
        yield Done(Reply(self.draft, self.encode, self._shed))

    @property
    def is_stored(self) -> bool:
        return self._saver is not None

    async def save(self, draft: Draft) -> tuple[Notice, ...]:
        """Put what is settled into the store, where there is one. Says what the caller should know about it."""
        return () if self._saver is None else await self._saver(draft)

    async def _save(self) -> None:
        # Tools may settle something while this is written: the draft is not the one that was saved.
        for notice in await self.save(self.draft):
            self.draft = self.draft.notice(notice)

    def so_far(self) -> Reply:
        """The reply as it would be if the turn were interrupted now."""
        draft = self.draft
        if draft.running and draft.pieces is not None:
            if self._replay is None or self._replay.pieces is not draft.pieces:
                self._replay = Replay(draft)
            draft = draft.cut_off(self._replay.answer())
        return Reply(draft.finish("interrupted"), self.encode)

    # Asking

    async def _ask(self, call: Callable[[bytes], Awaitable[Any]], pieces: list[bytes] | None) -> Any:
        """Make a model call; retry it while nothing of an answer has come."""
        tries = learnt = 0
        forgotten = False
        too_long: ContextOverflow | None = None
        sent: tuple[Piece, ...] = ()
        while True:
            quirks = learned.quirks(self.draft.transcript, self._provider.label)
            try:
                context, preamble = await self._compose(quirks)
            except ContextOverflow as problem:
                raise too_long or problem from None
            except ProviderError as problem:
                # Whoever keeps the conversation could not be asked about it.
                await self._wait(problem, tries)
                tries += 1
                continue
            if too_long is not None and context.pieces == sent:
                raise too_long
            body = self.draft.wire.request(
                model=self._provider.model,
                preamble=preamble,
                pieces=context.pieces,
                mark=context.mark,
                options=self.draft.wire.session_options(self._options, context.handle),
                quirks=self.draft.wire.quirks_for(self._options, quirks),
                stream=pieces is not None,
            )
            self.draft = self.draft.ask(context, pieces)
            sent = context.pieces
            try:
                return await call(body)
            except ContextOverflow as problem:
                if too_long is not None:
                    raise
                too_long = problem
                # Nobody was promised that something is recalled.
                self.draft = self._memory.without_recall(self.draft)
                self.draft = learned.outgrown(self.draft, problem, context, self._provider.label, self._window)
                continue
            except ProviderError as problem:
                if context.handle is not None and not forgotten and self.draft.wire.is_session_lost(problem.body):
                    forgotten = True
                    self._forget(context.keeper, str(problem))
                    continue
                # Nothing of an answer has come yet: `call` gives at most the first piece.
                wiser = learned.learnt(self.draft, problem, quirks, self._provider.label) if learnt < LESSONS else None
                if wiser is not None:
                    self.draft, learnt = wiser, learnt + 1
                    continue
                await self._wait(problem, tries)
            tries += 1

    async def _wait(self, problem: ProviderError, tries: int) -> None:
        """Wait before a call is made again; raise what went wrong if it is not."""
        wait = problem.retry_after if problem.retry_after is not None else _back_off(tries)
        if not problem.retryable or tries >= RETRIES or wait > LONGEST_WAIT:
            raise problem
        await sleep(wait)

    async def _compose(self, quirks: Quirks) -> tuple[Context, Preamble]:
        """What is sent next. A limit that is exceeded begins a new epoch first, maybe with a summary."""
        made = self._plan(self.draft.instruction, may_ask=summary_claims.may_ask(self.draft.transcript))
        if made.wants is not None:
            await self._summarise(self._summarizer(made.wants, made, quirks))
            made = self._plan(self.draft.instruction)
        keeper = self._keeper()
        held = await self._held(keeper, made.epoch) if keeper else None
        self.draft = await self._memory.prepared(self.draft, made, room=self._terms(None).room, alone=bool(keeper))
        preamble = self._memory.preamble(self._preamble, self.draft, made.epoch)
        aside = self.draft.aside
        context = compose(
            self.draft.transcript,
            epoch=made.epoch,
            wire=self.draft.wire,
            quirks=self.draft.wire.quirks_for(self._options, quirks),
            preamble=preamble,
            reader=f"{self._provider.account} {self._provider.model}",
            instruction=aside.text if aside is not None else None,
            tail=self.draft.tail,
            held=held.place if held else 0,
            data=aside.data if aside is not None else "",
            recalled=self.draft.added.recalled if self.draft.added else None,
        )
        more = self._memory.tokens(self.draft)
        context = msgspec.structs.replace(
            context,
            brief=context.brief + (self.draft.counter.count(self.draft.added.fresh) if self.draft.added else 0),
            tokens=made.tokens + more,
            counted=made.counted + more,
            meter=made.meter,
            keeper=keeper,
            handle=held.handle if held else None,
        )
        return context, preamble

    def _plan(self, instruction: str | None, *, settled: bool = False, may_ask: bool = False) -> Plan:
        """The epoch of the next request. A new one is begun, and the caller told."""
        terms = self._terms(instruction)
        made = plan(self.draft.transcript, self._policy, terms, settled=settled, may_ask=may_ask)
        draft = self.draft
        for notice in made.notices:
            draft = draft if notice in draft.notices else draft.notice(notice)
        self.draft = msgspec.structs.replace(draft, transcript=begun(draft.transcript, made))
        return made

    # What the provider keeps itself

    def _keeper(self) -> str:
        """A name for who keeps this conversation; nothing if nobody does but us."""
        wire = self.draft.wire
        way = wire.session_mode(self._options)
        return f"{wire.name} {way} {self._provider.account}" if way else ""

    async def _held(self, keeper: str, epoch: Epoch) -> ProviderSession | None:
        """What the provider has of the conversation and can go on with. If it has to be told anew, so is the caller."""
        found = provider_sessions.find(self.draft.transcript, keeper, self.draft.wire, epoch)
        provider = self._provider if isinstance(self._provider, AsyncStatefulProvider) else None
        if isinstance(found, ProviderSession):
            if provider is None or await provider.is_current(found.handle):
                return found
            self._forget(keeper, "what it has is gone, or went on without us")
        elif found:
            self._tell_rebuilt(found)
        if provider is not None and (self._opened is None or not await provider.is_current(self._opened)):
            self._opened = await provider.open_conversation(self._options)
        return None if self._opened is None else ProviderSession(self._opened, 0)

    def _forget(self, keeper: str, why: str) -> None:
        """The provider can't go on with what it has."""
        self.draft = self.draft.forget(keeper)
        self._tell_rebuilt(why)

    def _tell_rebuilt(self, why: str) -> None:
        told = any(notice.kind == "rebuilt" for notice in self.draft.notices)
        text = f"{self._provider.label} is told the whole conversation anew: {why.rstrip('.')}."
        self.draft = self.draft if told else self.draft.notice(Notice("rebuilt", text))

    # Summaries

    def _summarizer(self, wants: SummaryRequest, made: Plan, quirks: Quirks) -> AsyncSummarizer:
        return AsyncSummarizer(
            wants,
            self.draft.transcript,
            made.epoch,
            provider=self._provider,
            preamble=self._memory.preamble(self._preamble, self.draft, made.epoch),
            options=self._options,
            quirks=quirks,
            counter=self.draft.counter,
            prices=self.draft.prices,
        )

    async def _summarise(self, summarizer: AsyncSummarizer) -> None:
        """Have a summary written before the next call. If that does not work out, the turn goes on without."""
        made = await summarizer.ask()
        draft = self.draft.billed(made.usage)
        transcript = summary_claims.tried(draft.transcript, made.problem, told=True)
        if made.summary is not None:
            transcript = summed_up(transcript, made.summary, made.last)
        else:
            draft = draft.notice(summary_claims.no_summary(made.problem))
        self.draft = msgspec.structs.replace(draft, transcript=transcript)
        await self._save()

    def _tell_of_attempt(self) -> None:
        """Say if a summary in the background came to nothing."""
        transcript, notice = summary_claims.news(self.draft.transcript)
        if notice is not None:
            self.draft = msgspec.structs.replace(self.draft.notice(notice), transcript=transcript)

    def _terms(self, instruction: str | None) -> Terms:
        transcript = self.draft.transcript
        if instruction and self.draft.tail > 0:
            # Once it stays, it is counted with the others that do.
            place = transcript.place(self.draft.tail - 1) + 1
            instruction = (
                None if any(a.place == place for a in list_kept_suffixes(transcript, place - 1)) else instruction
            )
        window = windows(transcript).get(self._provider.label) or self._window
        return Terms(
            wire=self.draft.wire,
            counter=self.draft.counter,
            model=self._provider.label,
            preamble=self.draft.turn.preamble,
            fixed=self._fixed() + (self._aside_tokens(instruction) if instruction else 0),
            window=window,
            answer=answer_token_limit(self._options) or min((window or 0) // 8, 4096),
            prices=self.draft.prices,
            caches=self._provider.capabilities.cache,
            cache_seconds=self._provider.capabilities.cache_seconds,
            now=now(),
        )

    def _fixed(self) -> int:
        """Tokens of what is given fresh, with memory's own tool."""
        more = self._memory.preamble(Preamble(), self.draft, self._memory.epoch)
        return self._preamble_tokens + of_preamble(None, more.tools, self.draft.counter)

    def _aside_tokens(self, instruction: str) -> int:
        return of_message(self.draft.wire.instruction(instruction), self.draft.counter)

    def _look_back(self) -> tuple[AsyncSummarizer, SummaryClaim] | None:
        """After the answer its length is known: begin a new epoch now if the next turn would have to.

        If that takes a summary, and somebody can make it while nobody waits, it is claimed here.
        """
        try:
            may_ask = self._later is not None and summary_claims.may_ask(self.draft.transcript)
            made = self._plan(None, settled=True, may_ask=may_ask)
            if made.wants is None:
                return None
            summarizer = self._summarizer(made.wants, made, learned.quirks(self.draft.transcript, self._provider.label))
            claim = summary_claims.claim(self.draft.transcript, made.wants)
            transcript = summary_claims.claimed(self.draft.transcript, claim)
            self.draft = msgspec.structs.replace(self.draft, transcript=transcript)
            return summarizer, claim
        except Exception as problem:
            text = f"The answer is here, but what to keep for the next turn could not be decided: {problem!r}."
            self.draft = self.draft.notice(Notice("compaction_failed", text))
            return None

    def _news(self) -> list[Notice]:
        """The notices that the caller has not seen yet."""
        new = self.draft.notices[self._told :]
        self._told += len(new)
        return list(new)

    # Tools

    async def _settle_earlier(self) -> None:
        """Close the calls that an earlier run left open; run those again that may be."""
        calls = self.draft.open_calls()
        again = [call for call in calls if (tool := self._tools.get(call.name)) is not None and tool.idempotent]
        self.draft = self.draft.abandon([call for call in calls if call not in again])
        if again:
            await self._save()
        results = completed([self._job(call) for call in again])
        try:
            async for _ in results:
                await self._save()
        finally:
            await shielded(results.aclose)

    def _job(self, call: ToolCallView) -> Callable[[], Coroutine[Any, Any, None]]:
        async def job() -> None:
            self.draft = self.draft.begin_call(call)
            text, failed = await self._run(call)
            self.draft = self.draft.settle(call, self._memory.neutral(text), failed=failed)
            self._results.append(ToolResult(call.id, call.name, text, failed))

        return job

    async def _run(self, call: ToolCallView) -> tuple[str, bool]:
        """A tool's result as text, and whether it failed. The model is told what went wrong and can do better."""
        if self._memory.is_recall(call.name):
            return await self._memory.look_up(self.draft, call)
        if self._memory.is_update(call.name):
            self.draft, text, failed = self._memory.update(self.draft, call)
            return text, failed
        tool = self._tools.get(call.name)
        if tool is None:
            names = ", ".join(self._tools.names) or "none"
            return f"There is no tool {call.name!r}. The tools are: {names}.", True
        try:
            bound = tool.bind(call.arguments, ToolContext(call_id=call.id, turn=self.draft.turn.id, name=call.name))
        except ArgumentError as problem:
            return str(problem), True
        try:
            with self._around():
                return render(await call_tool(bound, is_async=tool.is_async)), False
        except Exception as problem:
            return tool_failure(problem), True

    def _fresh_results(self) -> list[ToolResult]:
        results, self._results = self._results, []
        return results

    def _checkpoint(self) -> Checkpoint:
        self.draft = self.draft.checkpoint()
        return Checkpoint(self.draft.transcript, self.encode)


def _back_off(tries: int) -> float:
    return FIRST_WAIT * 2.0**tries * random.uniform(0.75, 1.25)

"""Build the requests of a turn: plan, get a summary if the plan needs one, find the provider's session, compose.

Each step replaces the draft in `AsyncTurnProgress` as a whole, so an interrupt between two steps loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from longtalk.context.compose import Context
from longtalk.context.epochs import Epoch, read_windows, record_summary
from longtalk.context.measure import Terms, find_answer_room
from longtalk.context.prepare import Prepared, prepare
from longtalk.context.recipient import Recipient
from longtalk.events import Compacted
from longtalk.notices import Notice
from longtalk.observation import Observer, log_suppressed
from longtalk.policies.base import Rules, make_card_config
from longtalk.providers.base import AsyncProvider, AsyncStatefulProvider, explain_unknown_prices
from longtalk.tokens import count_preamble
from longtalk.transcript.transcript import now
from longtalk.turn import learned, provider_sessions, summary_claims
from longtalk.turn.card_request import ask_for_card
from longtalk.turn.memory import AsyncTurnMemory
from longtalk.turn.progress import AsyncTurnProgress
from longtalk.turn.provider_sessions import ProviderSession
from longtalk.turn.summarizer import AsyncSummarizer
from longtalk.turn.summary_claims import SummaryClaim
from longtalk.wires.options import answer_token_limit
from longtalk.wires.protocol import Handle, Quirks


class AsyncRequestBuilder:
    """A builder for the requests of one turn."""

    def __init__(
        self,
        progress: AsyncTurnProgress,
        memory: AsyncTurnMemory,
        *,
        provider: AsyncProvider,
        recipient: Recipient,
        rules: Rules,
        options: Mapping[str, Any],
        window: int | None,
        observer: Observer,
    ) -> None:
        self._progress = progress
        self._memory = memory
        self._provider = provider
        self._recipient = recipient
        self._rules = rules
        self._options = options
        self._answer_limit = answer_token_limit(options) if options else None
        self._prices_unknown = explain_unknown_prices(provider.capabilities)
        self._window = window
        self._observer = observer
        preamble = recipient.preamble
        self._preamble_tokens = count_preamble(preamble.system, preamble.tools, progress.draft.counter)
        self._is_refused = False
        self.compacted: list[Compacted] = []
        """The epochs with a summary that have begun and were not yielded as events yet."""
        self._opened: Handle | None = None
        """A session that was opened at the provider and has no answer yet."""

    async def build(self, quirks: Quirks, *, is_refused: bool = False) -> tuple[Context, Prepared, int]:
        """Return the context of the next request, what it was composed of, and how many entries the provider has.

        If a limit is exceeded, a new epoch begins first, if needed with a summary. `is_refused` says that the provider
        has just refused the request as too long.
        """
        self._is_refused = is_refused
        progress = self._progress
        may_ask = bool(self._rules.compactors) and summary_claims.may_ask(progress.draft.transcript)
        prepared = self._prepare(quirks, may_ask=may_ask)
        if prepared.plan.summary_request is not None:
            await self._write_summary(self._make_summarizer(prepared, quirks))
            prepared = self._prepare(quirks)
        epoch, transcript = prepared.plan.epoch, prepared.transcript
        if prepared.plan.begins and epoch.summary is not None and not epoch.summary.is_brief:
            # A request that is built again, because the one before it was refused, begins its epoch again.
            self.compacted = [Compacted(transcript[-1].id, transcript, epoch)]
        session_key = self._make_session_key() if self._recipient.keeps_conversation else ""
        session = await self._find_session(session_key, prepared.plan.epoch) if session_key else None
        if self._memory.is_active or session_key:
            draft = progress.draft = await self._memory.recall(progress.draft, prepared)
            prepared = msgspec.structs.replace(
                prepared, transcript=draft.transcript, added=prepared.added if draft.added is None else draft.added
            )
        held = session.place if session else 0
        context = prepared.compose(held=held, session_key=session_key, handle=session.handle if session else None)
        return context, prepared, held

    async def preview(self, quirks: Quirks) -> tuple[Context, Prepared]:
        """Return the next request and what it was composed of. No summary is written for it."""
        prepared = self._prepare(quirks)
        draft = await self._memory.recall(self._progress.draft, prepared)
        prepared = msgspec.structs.replace(prepared, added=draft.added or prepared.added)
        return prepared.compose(), prepared

    def write_body(self, context: Context, prepared: Prepared, options: Mapping[str, Any], *, stream: bool) -> bytes:
        """Return the JSON of a request."""
        wire = self._progress.draft.wire
        return wire.build_request(
            model=self._provider.model,
            preamble=prepared.preamble,
            pieces=context.pieces,
            mark=context.mark,
            options=wire.session_options(options, context.handle),
            quirks=prepared.recipient.quirks,
            stream=stream,
        )

    async def compact(self, quirks: Quirks) -> Epoch:
        """Begin a new epoch now, as short as the policy makes it, if needed with a summary. Return the epoch."""
        prepared = self._prepare(quirks, may_ask=True, forced=True)
        if prepared.plan.summary_request is not None:
            await self._write_summary(self._make_summarizer(prepared, quirks))
            prepared = self._prepare(quirks, forced=True)
        return prepared.plan.epoch

    async def request_card(self) -> None:
        """If this turn needs a memory card that the model can't add to its answer, request it and update the brief."""
        draft, keeper = self._progress.draft, self._rules.keeper
        if keeper is None or not self._memory.needs_card_request(draft):
            return
        answer = await ask_for_card(
            draft.transcript,
            make_card_config(keeper),
            provider=self._provider,
            options=self._options,
            quirks=learned.read_quirks(draft.transcript, self._provider.label),
            observer=self._observer,
        )
        draft = draft.add_side_call(answer.usage) if answer.was_sent else draft
        self._progress.draft = self._memory.apply_card(draft, answer.content) if answer.content else draft

    def plan_next_turn(self, *, background: bool) -> tuple[AsyncSummarizer, SummaryClaim] | None:
        """Begin a new epoch now, after the answer, if the next turn would have to begin one anyway.

        If the new epoch needs a summary and `background` is set, claim the summary, and return the claim and the
        summarizer.
        """
        progress = self._progress
        if self._window is None and not self._rules.compactors and not read_windows(progress.draft.transcript):
            # There is no limit.
            return None
        try:
            may_ask = background and summary_claims.may_ask(progress.draft.transcript)
            quirks = learned.read_quirks(progress.draft.transcript, self._provider.label)
            prepared = self._prepare(quirks, settled=True, may_ask=may_ask)
            request = prepared.plan.summary_request
            if request is None:
                return None
            summarizer = self._make_summarizer(prepared, quirks)
            claim = summary_claims.make_claim(progress.draft.transcript, request)
            transcript = summary_claims.record_claim(progress.draft.transcript, claim)
            progress.draft = msgspec.structs.replace(progress.draft, transcript=transcript)
            return summarizer, claim
        except Exception as problem:
            log_suppressed("compaction failed", problem, where=progress.draft.turn.id)
            text = f"The answer is complete, but planning the next turn failed: {problem!r}."
            progress.draft = progress.draft.notice(Notice("compaction_failed", text))
            return None

    def _prepare(
        self, quirks: Quirks, *, settled: bool = False, may_ask: bool = False, forced: bool = False
    ) -> Prepared:
        """Prepare the next request. If it begins an epoch, record the epoch and add the plan's notices to the draft."""
        draft, wire = self._progress.draft, self._progress.draft.wire
        recipient = msgspec.structs.replace(
            self._recipient,
            quirks=wire.quirks_for(self._options, quirks),
            instruction=None if settled else draft.instruction,
        )
        prepared = prepare(
            draft.transcript,
            self._rules,
            self._make_terms(),
            recipient,
            tail=draft.tail,
            added=draft.added,
            settled=settled,
            may_ask=may_ask,
            forced=forced,
        )
        if prepared.plan.begins:
            self._observer.report_epoch()
        for notice in prepared.plan.notices:
            draft = draft if notice in draft.notices else draft.notice(notice)
        if prepared.transcript is not draft.transcript:
            draft = msgspec.structs.replace(draft, transcript=prepared.transcript)
        self._progress.draft = draft
        return prepared

    def _make_terms(self) -> Terms:
        draft, provider = self._progress.draft, self._provider
        learned_window = read_windows(draft.transcript).get(provider.label)
        # A smaller window that the caller has given later is kept.
        window = min((each for each in (learned_window, self._window) if each), default=None)
        return Terms(
            wire=draft.wire,
            counter=draft.counter,
            model=provider.label,
            preamble=draft.turn.preamble,
            fixed=self._preamble_tokens,
            window=window,
            is_learned=learned_window is not None and not self._is_refused,
            given=self._window,
            answer=find_answer_room(window, self._answer_limit),
            prices=draft.prices,
            prices_unknown=self._prices_unknown,
            caches=provider.capabilities.cache,
            cache_seconds=provider.capabilities.cache_seconds,
            now=now(),
        )

    # Sessions of the provider

    def _make_session_key(self) -> str:
        """Return the key of the provider's session."""
        wire = self._progress.draft.wire
        return f"{wire.name} {wire.session_mode(self._options)} {self._provider.account}"

    async def _find_session(self, session_key: str, epoch: Epoch) -> ProviderSession | None:
        """Return the session to resume, or a new one. If the session must be rebuilt, add a notice."""
        draft = self._progress.draft
        found = provider_sessions.find(draft.transcript, session_key, draft.wire, epoch)
        provider = self._provider if isinstance(self._provider, AsyncStatefulProvider) else None
        if isinstance(found, ProviderSession):
            if provider is None or await provider.is_current(found.handle):
                return found
            self.drop_session(session_key, "what it has is gone, or went on without us")
        elif found:
            self._report_rebuilt(found)
        if provider is not None and (self._opened is None or not await provider.is_current(self._opened)):
            self._opened = await provider.open_conversation(self._options)
        return None if self._opened is None else ProviderSession(self._opened, 0)

    def drop_session(self, session_key: str, why: str) -> None:
        """Remove a session that the provider can't resume, and add a notice that says why."""
        self._progress.draft = self._progress.draft.forget(session_key)
        self._report_rebuilt(why)

    def _report_rebuilt(self, why: str) -> None:
        draft = self._progress.draft
        if all(notice.kind != "rebuilt" for notice in draft.notices):
            text = f"The whole conversation is sent to {self._provider.label} again: {why.rstrip('.')}."
            self._progress.draft = draft.notice(Notice("rebuilt", text))

    # Summaries

    def report_failed_summary(self) -> None:
        """Add a notice if a background summary has failed and the failure was not reported yet."""
        draft = self._progress.draft
        transcript, notice = summary_claims.take_failure_notice(draft.transcript)
        if notice is not None:
            self._progress.draft = msgspec.structs.replace(draft.notice(notice), transcript=transcript)

    def _make_summarizer(self, prepared: Prepared, quirks: Quirks) -> AsyncSummarizer:
        return AsyncSummarizer(
            prepared, provider=self._provider, options=self._options, quirks=quirks, observer=self._observer
        )

    async def _write_summary(self, summarizer: AsyncSummarizer) -> None:
        """Write a summary before the next model call. If that fails, the turn continues without it."""
        outcome = await summarizer.ask()
        draft = self._progress.draft
        if summarizer.request.write is None:
            draft = draft.add_side_call(outcome.usage)
        transcript = summary_claims.record_outcome(draft.transcript, outcome.problem, reported=True)
        if outcome.summary is not None:
            transcript = record_summary(transcript, outcome.summary, outcome.last)
        else:
            draft = draft.notice(summary_claims.make_failure_notice(outcome.problem))
        self._progress.draft = msgspec.structs.replace(draft, transcript=transcript)
        await self._progress.save()

"""Builds the requests of a turn: plans the epoch, has a summary written, finds the provider's session, composes.

The draft in `AsyncTurnProgress` is replaced whole after every step, so that an interrupt between two steps loses
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from longtalk.context.compose import Context, compose
from longtalk.context.epochs import Epoch, list_kept_suffixes, read_windows, record_summary
from longtalk.context.measure import Terms
from longtalk.context.planning import Plan, apply_plan, make_plan
from longtalk.memory.summary import SummaryRequest
from longtalk.notices import Notice
from longtalk.policies import Policy
from longtalk.providers.base import AsyncProvider, AsyncStatefulProvider
from longtalk.tokens import count_message, count_preamble
from longtalk.transcript.transcript import now
from longtalk.turn import learned, provider_sessions, summary_claims
from longtalk.turn.memory import AsyncTurnMemory
from longtalk.turn.progress import AsyncTurnProgress
from longtalk.turn.provider_sessions import ProviderSession
from longtalk.turn.summarizer import AsyncSummarizer
from longtalk.turn.summary_claims import SummaryClaim
from longtalk.wires.options import answer_token_limit
from longtalk.wires.protocol import Handle, Preamble, Quirks


class AsyncRequestBuilder:
    """Builds the requests of one turn."""

    def __init__(
        self,
        progress: AsyncTurnProgress,
        memory: AsyncTurnMemory,
        *,
        provider: AsyncProvider,
        preamble: Preamble,
        policy: Policy,
        options: Mapping[str, Any],
        window: int | None,
    ) -> None:
        self._progress = progress
        self._memory = memory
        self._provider = provider
        self._preamble = preamble
        self._policy = policy
        self._options = options
        self._window = window
        self._preamble_tokens = count_preamble(preamble.system, preamble.tools, progress.draft.counter)
        self._opened: Handle | None = None
        """A conversation that was opened at the provider, and that no answer belongs to yet."""

    async def build(self, quirks: Quirks) -> tuple[Context, Preamble]:
        """Return the context and the preamble of the next request.

        If a limit is exceeded, a new epoch begins first, if needed with a summary.
        """
        progress = self._progress
        may_ask = summary_claims.may_ask(progress.draft.transcript)
        plan = self._plan(progress.draft.instruction, may_ask=may_ask)
        if plan.summary_request is not None:
            await self._write_summary(self._make_summarizer(plan.summary_request, plan, quirks))
            plan = self._plan(progress.draft.instruction)
        session_key = self._make_session_key()
        session = await self._find_session(session_key, plan.epoch) if session_key else None
        room = self._make_terms(None).room
        progress.draft = await self._memory.prepare_additions(progress.draft, plan, room=room, alone=bool(session_key))
        draft = progress.draft
        preamble = self._memory.extend_preamble(self._preamble, draft, plan.epoch)
        suffix = draft.suffix
        context = compose(
            draft.transcript,
            epoch=plan.epoch,
            wire=draft.wire,
            quirks=draft.wire.quirks_for(self._options, quirks),
            preamble=preamble,
            reader=f"{self._provider.account} {self._provider.model}",
            instruction=suffix.text if suffix is not None else None,
            tail=draft.tail,
            held=session.place if session else 0,
            data=suffix.data if suffix is not None else "",
            recalled=draft.added.recalled if draft.added else None,
        )
        more = self._memory.count_added_tokens(draft)
        context = msgspec.structs.replace(
            context,
            brief=context.brief + (draft.counter.count(draft.added.fresh) if draft.added else 0),
            tokens=plan.tokens + more,
            counted=plan.counted + more,
            meter=plan.meter,
            session_key=session_key,
            handle=session.handle if session else None,
        )
        return context, preamble

    def plan_next_turn(self, *, background: bool) -> tuple[AsyncSummarizer, SummaryClaim] | None:
        """Begin a new epoch after the answer, when its length is known, if the next turn would have to begin one.

        If that needs a summary and `background` allows to write it later, claim it and return what writes it.
        """
        progress = self._progress
        try:
            may_ask = background and summary_claims.may_ask(progress.draft.transcript)
            plan = self._plan(None, settled=True, may_ask=may_ask)
            if plan.summary_request is None:
                return None
            quirks = learned.read_quirks(progress.draft.transcript, self._provider.label)
            summarizer = self._make_summarizer(plan.summary_request, plan, quirks)
            claim = summary_claims.make_claim(progress.draft.transcript, plan.summary_request)
            transcript = summary_claims.record_claim(progress.draft.transcript, claim)
            progress.draft = msgspec.structs.replace(progress.draft, transcript=transcript)
            return summarizer, claim
        except Exception as problem:
            text = f"The answer is here, but what to keep for the next turn could not be decided: {problem!r}."
            progress.draft = progress.draft.notice(Notice("compaction_failed", text))
            return None

    def _plan(self, instruction: str | None, *, settled: bool = False, may_ask: bool = False) -> Plan:
        """Return the plan of the next request. If it begins an epoch, record that, and add the plan's notices."""
        draft = self._progress.draft
        terms = self._make_terms(instruction)
        plan = make_plan(draft.transcript, self._policy, terms, settled=settled, may_ask=may_ask)
        for notice in plan.notices:
            draft = draft if notice in draft.notices else draft.notice(notice)
        self._progress.draft = msgspec.structs.replace(draft, transcript=apply_plan(draft.transcript, plan))
        return plan

    def _make_terms(self, instruction: str | None) -> Terms:
        draft = self._progress.draft
        transcript = draft.transcript
        if instruction and draft.tail > 0:
            # An instruction that stays is counted with the other kept suffixes.
            position = transcript.position(draft.tail - 1) + 1
            suffixes = list_kept_suffixes(transcript, position - 1)
            instruction = None if any(suffix.place == position for suffix in suffixes) else instruction
        instruction_tokens = (
            count_message(draft.wire.write_instruction(instruction), draft.counter) if instruction else 0
        )
        window = read_windows(transcript).get(self._provider.label) or self._window
        return Terms(
            wire=draft.wire,
            counter=draft.counter,
            model=self._provider.label,
            preamble=draft.turn.preamble,
            fixed=self._count_preamble() + instruction_tokens,
            window=window,
            answer=answer_token_limit(self._options) or min((window or 0) // 8, 4096),
            prices=draft.prices,
            caches=self._provider.capabilities.cache,
            cache_seconds=self._provider.capabilities.cache_seconds,
            now=now(),
        )

    def _count_preamble(self) -> int:
        """Return the tokens of the preamble, with the tool that memory adds."""
        draft = self._progress.draft
        more = self._memory.extend_preamble(Preamble(), draft, self._memory.epoch)
        return self._preamble_tokens + count_preamble(None, more.tools, draft.counter)

    # Sessions of the provider

    def _make_session_key(self) -> str:
        """Return the key of the provider's session, or an empty string if the provider keeps no conversation."""
        wire = self._progress.draft.wire
        mode = wire.session_mode(self._options)
        return f"{wire.name} {mode} {self._provider.account}" if mode else ""

    async def _find_session(self, session_key: str, epoch: Epoch) -> ProviderSession | None:
        """Return the session that the provider can resume, or a new one. A rebuilt session adds a notice."""
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
        """Remove a session that the provider can't resume, and report it."""
        self._progress.draft = self._progress.draft.forget(session_key)
        self._report_rebuilt(why)

    def _report_rebuilt(self, why: str) -> None:
        draft = self._progress.draft
        if all(notice.kind != "rebuilt" for notice in draft.notices):
            text = f"{self._provider.label} is told the whole conversation anew: {why.rstrip('.')}."
            self._progress.draft = draft.notice(Notice("rebuilt", text))

    # Summaries

    def report_failed_summary(self) -> None:
        """Add a notice if a summary in the background has failed and the caller does not know it yet."""
        draft = self._progress.draft
        transcript, notice = summary_claims.take_failure_notice(draft.transcript)
        if notice is not None:
            self._progress.draft = msgspec.structs.replace(draft.notice(notice), transcript=transcript)

    def _make_summarizer(self, request: SummaryRequest, plan: Plan, quirks: Quirks) -> AsyncSummarizer:
        draft = self._progress.draft
        return AsyncSummarizer(
            request,
            draft.transcript,
            plan.epoch,
            provider=self._provider,
            preamble=self._memory.extend_preamble(self._preamble, draft, plan.epoch),
            options=self._options,
            quirks=quirks,
            counter=draft.counter,
            prices=draft.prices,
        )

    async def _write_summary(self, summarizer: AsyncSummarizer) -> None:
        """Have a summary written before the next call. If that fails, the turn continues without it."""
        outcome = await summarizer.ask()
        draft = self._progress.draft.add_summary_call(outcome.usage)
        transcript = summary_claims.record_outcome(draft.transcript, outcome.problem, reported=True)
        if outcome.summary is not None:
            transcript = record_summary(transcript, outcome.summary, outcome.last)
        else:
            draft = draft.notice(summary_claims.make_failure_notice(outcome.problem))
        self._progress.draft = msgspec.structs.replace(draft, transcript=transcript)
        await self._progress.save()

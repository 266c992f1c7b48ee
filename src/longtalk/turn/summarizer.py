"""Have a model or the app write a summary.

The result is an `Outcome`, never an error: a turn can continue without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from longtalk._util.concurrency import call_tool, run_with_timeout
from longtalk.context.epochs import list_covered, list_replaced, to_old_entries
from longtalk.context.prepare import Prepared, compose_summary_request
from longtalk.errors import ProviderError
from longtalk.memory.summary import (
    TAG,
    Summary,
    SummaryRequest,
    SummaryWriter,
    find_summary_problem,
    strip_summary_tags,
)
from longtalk.observation import Observer
from longtalk.providers.base import AsyncProvider
from longtalk.tokens import count_message
from longtalk.transcript.transcript import now
from longtalk.turn.observed_content import note_answer, note_request
from longtalk.turn.provider_client import AsyncProviderClient
from longtalk.usage import Usage
from longtalk.wires.options import ANSWER_LIMITS
from longtalk.wires.protocol import Quirks

if TYPE_CHECKING:
    pass

_ENDED = {"length": "it was cut off", "calls": "it calls tools instead", "filtered": "its provider has filtered it"}
_NOT_FOR_THIS = ("response_format", "stop", "stop_sequences")
"""Options about the form of answers, which don't apply to a summary."""
_NOR_INSIDE = {
    "text": ("format",),
    "output_config": ("format",),
    "generationConfig": ("responseMimeType", "responseSchema", "responseJsonSchema", "stopSequences"),
}
"""Options of this kind that are nested in other options."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one request for a summary: the summary, or the problem."""

    summary: Summary | None = None
    last: str = ""
    """The id of the last entry that the summary covers."""
    problem: str = ""
    usage: bytes | None = None
    """The provider's usage report."""
    cost: float | None = None
    """The cost in US dollars; None if it is unknown."""


class AsyncSummarizer:
    """A writer of one summary of a transcript."""

    def __init__(
        self,
        prepared: Prepared,
        *,
        provider: AsyncProvider,
        options: Mapping[str, Any],
        quirks: Quirks,
        observer: Observer,
    ) -> None:
        """Prepare the summary that `prepared.plan.summary_request`, which must not be None, asks for."""
        if prepared.plan.summary_request is None:
            raise ValueError("`prepared.plan.summary_request` is None: the plan needs no summary.")
        self.request: SummaryRequest = prepared.plan.summary_request
        self._transcript = prepared.transcript
        self._epoch = prepared.plan.epoch
        self._recipient = msgspec.structs.replace(prepared.recipient, preamble=prepared.preamble, quirks=quirks)
        self._counter = prepared.terms.counter
        self._prices = prepared.terms.prices
        self._provider = provider
        self._observer = observer
        self._options = make_summary_options(options, longest=2 * self.request.length)

    async def ask(self) -> Outcome:
        """Request the summary once, and check the result."""
        self._observer.begin_call("summary")
        try:
            with self._observer:
                outcome = await (self._ask() if self.request.write is None else self._call_app(self.request.write))
            self._observer.end_call(outcome.usage, error="BadSummary" if outcome.summary is None else "")
            return outcome
        except TimeoutError:
            asked = self._provider.label if self.request.write is None else "the app's function"
            return Outcome(problem=f"{asked} did not answer within {self.request.timeout:g} seconds")
        except ProviderError as problem:
            return Outcome(problem=str(problem).rstrip("."))
        except Exception as problem:
            # Whatever error the provider raises, the conversation continues without a summary.
            return Outcome(problem=f"{type(problem).__name__}: {problem}")

    async def _ask(self) -> Outcome:
        wire = self._provider.wire
        options = wire.sessionless_options(self._options)
        quirks = wire.quirks_for(options, self._recipient.quirks)
        recipient = msgspec.structs.replace(self._recipient, quirks=quirks)
        context, prompt = compose_summary_request(self._transcript, self._epoch, self.request, wire, recipient)
        body = wire.build_request(
            model=self._provider.model,
            preamble=recipient.preamble,
            pieces=(*context.pieces, prompt),
            mark=len(context.pieces),
            options=options,
            quirks=quirks,
            stream=False,
        )
        note_request(self._observer, wire, recipient.preamble.system, (*context.pieces, prompt))
        client = AsyncProviderClient(self._provider)
        data = await run_with_timeout(self.request.timeout, lambda: client.send(body))
        answer = client.understand(wire.parse, data)
        note_answer(self._observer, answer)
        instead = sum(run.tokens for run in context.manifest if run.verdict == "sent") + context.summary
        text = strip_summary_tags(answer.view.text)
        tokens = count_message(wire.quote(TAG, text), self._counter)
        wrong = "" if answer.finish == "stop" else _ENDED.get(answer.finish, "it is not whole")
        wrong = wrong or answer.view.refusal or find_summary_problem(text, tokens, instead)
        usage = wire.read_usage(answer.usage) if answer.usage else Usage()
        spent = self._cost(usage)
        if wrong:
            excerpt = " ".join(text.split())[:100]
            return Outcome(problem=f"{wrong}: {excerpt!r}" if excerpt else wrong, usage=answer.usage, cost=spent)
        summary = Summary(
            text=text,
            covers=list_covered(self._epoch, self.request.stop),
            model=self._provider.label,
            at=now(),
            tokens=tokens,
            usage=usage,
            predicted=self.request.predicted,
        )
        return Outcome(summary=summary, last=self._last, usage=answer.usage, cost=spent)

    async def _call_app(self, write: SummaryWriter) -> Outcome:
        """Have the app's function write the summary.

        Its text is rejected if it is empty or not shorter than the original.
        """
        present, stop = self._epoch.summary, self.request.stop
        entries = list_replaced(self._transcript, self._epoch, stop)
        call = partial(write, present.text if present else "", to_old_entries(entries))
        is_async = inspect.iscoroutinefunction(write)
        text = await run_with_timeout(self.request.timeout, lambda: call_tool(call, is_async=is_async))
        if not isinstance(text, str):
            return Outcome(problem=f"the app's function returned {type(text).__name__}, not text")
        tokens = count_message(self._provider.wire.quote(TAG, text.strip()), self._counter)
        replaced = sum(entry.tokens for entry in entries) + (present.tokens if present else 0)
        if not text.strip() or tokens >= replaced:
            why = "longer than what it replaces" if text.strip() else "empty"
            return Outcome(problem=f"the text of the app's function is {why}")
        covers, predicted = list_covered(self._epoch, stop), self.request.predicted
        summary = Summary(text=text.strip(), covers=covers, at=now(), tokens=tokens, predicted=predicted)
        return Outcome(summary=summary, last=self._last)

    @property
    def _last(self) -> str:
        """The id of the last entry that the summary covers."""
        return self._transcript[self._transcript.index_of(self.request.stop) - 1].id

    def _cost(self, usage: Usage) -> float | None:
        if self._prices is None:
            return None
        from longtalk.models.call_cost import cost

        spent = cost(usage, self._prices)
        return spent.total if spent is not None else None


def make_summary_options(options: Mapping[str, Any], *, longest: int) -> dict[str, Any]:
    """Return the options for a summary: none about the form of answers, and limits of at least `longest` tokens."""
    # The app may limit answers to a short length, and a summary that is cut off is useless. The cache does not depend
    # on these options.
    kept_options: dict[str, Any] = {}
    for name, value in options.items():
        if name in _NOT_FOR_THIS or (name in ("tool_choice", "toolConfig") and _forces_calls(value)):
            continue
        if name in _NOR_INSIDE and isinstance(value, Mapping):
            inner = {key: each for key, each in value.items() if key not in _NOR_INSIDE[name]}
            if inner or not value:
                kept_options[name] = {key: _raise_limit(key, each, longest) for key, each in inner.items()}
            continue
        kept_options[name] = _raise_limit(name, value, longest)
    return kept_options


def _raise_limit(name: str, value: Any, longest: int) -> Any:
    return max(value, longest) if name in (*ANSWER_LIMITS, "maxOutputTokens") and isinstance(value, int) else value


def _forces_calls(choice: Any) -> bool:
    """Return True if this option forces the answer to call a tool."""
    if not isinstance(choice, Mapping):
        return choice in ("required", "any")
    if "functionCallingConfig" in choice:
        config = choice["functionCallingConfig"]
        return isinstance(config, Mapping) and config.get("mode") == "ANY"
    kind = choice.get("type")
    if kind == "allowed_tools":
        allowed = choice.get("allowed_tools", choice)
        return isinstance(allowed, Mapping) and allowed.get("mode") == "required"
    # Any other choice names a tool, or a kind of tool.
    return kind not in (None, "auto", "none")

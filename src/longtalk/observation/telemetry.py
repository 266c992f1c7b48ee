"""OpenTelemetry spans and metrics of turns, by the conventions for generative AI.

    chat = Chat("anthropic:claude-sonnet-5", on_event=Telemetry())

A turn is a span `invoke_agent`. Its children are a span for each model call (`chat MODEL`), tool run
(`execute_tool NAME`) and compaction. Spans are made from observations, when a step has ended; a turn's span begins with
its first step. They have no content (no messages, arguments, results or error texts) unless `content=True` asks for it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any

from longtalk.errors import MissingExtra
from longtalk.observation import genai_names as names
from longtalk.observation.content import describe_messages, describe_tool_run
from longtalk.observation.observer import INTERRUPTED, Observation
from longtalk.usage import Usage

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

_MOST_TURNS = 10_000
"""How many turns are remembered, so that a summary that is written after its turn belongs to the turn's trace."""


class Telemetry:
    """A function for `on_event` that makes spans and metrics. One object serves any number of chats and threads.

    Without providers, those are used that the program has set globally. With `content`, the spans of model calls have
    the system text, the messages and the answer, and those of tool runs arguments and result. Needs the extra `otel`.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        content: bool = False,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            raise MissingExtra("Telemetry needs an extra. Run: pip install 'longtalk[otel]'") from None
        self.wants_content = content
        self._trace = trace
        self._tracer = trace.get_tracer("longtalk", tracer_provider=tracer_provider)
        meter = metrics.get_meter("longtalk", meter_provider=meter_provider)
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BUCKETS,
        )
        self._durations = {
            name: meter.create_histogram(
                name, unit="s", description=text, explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS
            )
            for name, text in (
                (names.OPERATION_DURATION, "Duration of model calls."),
                (names.TURN_DURATION, "Duration of turns."),
                (names.TOOL_DURATION, "Duration of tool runs."),
            )
        }
        self._turns: OrderedDict[str, _Turn] = OrderedDict()
        self._lock = Lock()

    def __call__(self, seen: Observation) -> None:
        """Record an observation."""
        end = time.time_ns()
        start = end - int(seen.seconds * 1e9) if seen.kind != "retry" else end
        turn = self._find_turn(seen, start)
        if seen.kind == "turn":
            self._end_turn(turn, seen, end)
        elif seen.kind == "retry":
            turn.span.add_event(names.RETRY, {names.ERROR: seen.error, names.RETRY_WAIT: seen.seconds}, timestamp=end)
        elif seen.kind == "epoch":
            self._record_span(turn, seen, names.COMPACTION, {}, start, end)
        elif seen.kind == "tool_run":
            self._record_tool(turn, seen, start, end)
        else:
            self._record_call(turn, seen, start, end)

    def _record_call(self, turn: _Turn, seen: Observation, start: int, end: int) -> None:
        labels = {names.OPERATION: names.CHAT, **_describe_model(seen)}
        attributes: dict[str, Any] = dict(labels)
        if seen.kind == "summary":
            attributes[names.IS_SUMMARY] = True
        if seen.usage is not None:
            turn.usage += seen.usage
            attributes |= _describe_usage(seen.usage)
            self._tokens.record(seen.usage.input, {**labels, names.TOKEN_TYPE: "input"})
            self._tokens.record(seen.usage.output, {**labels, names.TOKEN_TYPE: "output"})
        self._durations[names.OPERATION_DURATION].record(seen.seconds, labels | _describe_error(seen))
        if seen.content is not None:
            attributes |= describe_messages(seen.content)
        name = f"{names.CHAT} {labels[names.REQUEST_MODEL]}"
        self._record_span(turn, seen, name, attributes, start, end, kind=self._trace.SpanKind.CLIENT)

    def _record_tool(self, turn: _Turn, seen: Observation, start: int, end: int) -> None:
        # A model may call a tool that does not exist, by any name; such a name is not reported.
        labels = {names.OPERATION: names.EXECUTE_TOOL} | ({names.TOOL_NAME: seen.tool} if seen.tool else {})
        self._durations[names.TOOL_DURATION].record(seen.seconds, labels | _describe_error(seen))
        attributes = {**labels, names.TOOL_CALL: seen.call, names.TOOL_TYPE: "function"}
        if seen.content is not None:
            attributes |= describe_tool_run(seen.content)
        name = f"{names.EXECUTE_TOOL} {seen.tool}".rstrip()
        self._record_span(turn, seen, name, attributes, start, end)

    def _record_span(
        self, turn: _Turn, seen: Observation, name: str, attributes: dict[str, Any], start: int, end: int, **more: Any
    ) -> None:
        context = self._trace.set_span_in_context(turn.span)
        attributes = attributes | _describe_turn(seen)
        span = self._tracer.start_span(name, context=context, attributes=attributes, start_time=start, **more)
        self._end_span(span, seen, end)

    def _end_turn(self, turn: _Turn, seen: Observation, end: int) -> None:
        labels = {names.OPERATION: names.INVOKE_AGENT, **_describe_model(seen)}
        self._durations[names.TURN_DURATION].record(seen.seconds, labels | _describe_error(seen))
        turn.span.set_attributes(_describe_usage(turn.usage))
        self._end_span(turn.span, seen, end)

    def _end_span(self, span: Span, seen: Observation, end: int) -> None:
        if seen.error == INTERRUPTED:
            span.set_attribute(names.INTERRUPTED, True)
        elif seen.error:
            span.set_attribute(names.ERROR, seen.error)
            span.set_status(self._trace.StatusCode.ERROR)
        span.end(end)

    def _find_turn(self, seen: Observation, start: int) -> _Turn:
        """Return the span of an observation's turn. The first observation begins it."""
        with self._lock:
            turn = self._turns.get(seen.turn)
            if turn is None:
                attributes = {names.OPERATION: names.INVOKE_AGENT, **_describe_turn(seen), **_describe_model(seen)}
                turn = _Turn(self._tracer.start_span(names.INVOKE_AGENT, attributes=attributes, start_time=start))
                self._turns[seen.turn] = turn
                if len(self._turns) > _MOST_TURNS:
                    self._turns.popitem(last=False)
            return turn


class _Turn:
    """The span of a turn, and the tokens of its model calls so far."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.usage = Usage()


def _describe_model(seen: Observation) -> dict[str, Any]:
    provider, _, model = seen.model.partition(":")
    return {names.PROVIDER: names.name_provider(provider), names.REQUEST_MODEL: model or provider} if provider else {}


def _describe_turn(seen: Observation) -> dict[str, Any]:
    conversation = {names.CONVERSATION: seen.conversation} if seen.conversation else {}
    return {names.TURN_ID: seen.turn, **conversation}


def _describe_usage(usage: Usage) -> dict[str, Any]:
    return {
        names.INPUT_TOKENS: usage.input,
        names.OUTPUT_TOKENS: usage.output,
        names.CACHE_READ_TOKENS: usage.cached,
        names.CACHE_WRITE_TOKENS: usage.written,
    }


def _describe_error(seen: Observation) -> dict[str, Any]:
    return {names.ERROR: seen.error} if seen.error else {}

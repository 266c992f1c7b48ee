"""OpenTelemetry spans and metrics, made by the real SDK and read from its exporters in memory."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from longtalk import Chat, Conversation, KeepLast
from longtalk.errors import Overloaded, RequestRefused
from longtalk.events import Text
from longtalk.observation import Observation, join_observers
from longtalk.observation.telemetry import Telemetry
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says
from longtalk.wires import HTTP_WIRES

SECRET = "swordfish"
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 60}}


class Collected:
    """Telemetry with exporters in memory."""

    def __init__(self, *, content: bool = False) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider([self._reader])
        self.telemetry = Telemetry(tracer_provider=self.tracers, meter_provider=self._meters, content=content)

    @property
    def finished(self) -> list[Any]:
        """All spans, in the order in which they ended."""
        return list(self._exporter.get_finished_spans())

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}

    @property
    def metrics(self) -> dict[str, list[Any]]:
        """The data points of each metric."""
        data: Any = self._reader.get_metrics_data()
        (resource,) = data.resource_metrics
        (scope,) = resource.scope_metrics
        assert scope.scope.name == "longtalk"
        return {metric.name: list(metric.data.data_points) for metric in scope.metrics}

    def dump(self) -> str:
        return "".join(span.to_json() for span in self._exporter.get_finished_spans()) + str(self.metrics)


@pytest.fixture
def collected() -> Collected:
    return Collected()


def lookup(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def call_tool(collected: Collected) -> None:
    provider = Scripted(says(calls=[("c1", "lookup", {"q": SECRET})], usage=USAGE), says(SECRET, usage=USAGE))
    talk = Conversation("lesson", model=provider, store=InMemory(), tools=[lookup], on_event=collected.telemetry)
    talk.send(SECRET, system=SECRET)


def test_a_turn_has_a_span_with_its_calls_and_tools_as_children(collected: Collected) -> None:
    call_tool(collected)
    spans = collected.spans
    assert set(spans) == {"invoke_agent", "chat model", "execute_tool lookup"}
    turn = spans["invoke_agent"]
    assert turn.parent is None
    for name in ("chat model", "execute_tool lookup"):
        parent: Any = spans[name].parent
        assert parent.span_id == turn.context.span_id
    assert (spans["chat model"].kind, spans["execute_tool lookup"].kind) == (SpanKind.CLIENT, SpanKind.INTERNAL)


def test_spans_have_the_attributes_of_the_conventions(collected: Collected) -> None:
    call_tool(collected)
    call: Any = collected.spans["chat model"].attributes
    assert (call["gen_ai.operation.name"], call["gen_ai.provider.name"]) == ("chat", "scripted")
    assert (call["gen_ai.request.model"], call["gen_ai.conversation.id"]) == ("model", "lesson")
    assert (call["gen_ai.usage.input_tokens"], call["gen_ai.usage.output_tokens"]) == (100, 20)
    assert call["gen_ai.usage.cache_read.input_tokens"] == 60
    tool: Any = collected.spans["execute_tool lookup"].attributes
    assert (tool["gen_ai.operation.name"], tool["gen_ai.tool.name"]) == ("execute_tool", "lookup")
    assert (tool["gen_ai.tool.call.id"], tool["gen_ai.tool.type"]) == ("c1", "function")
    turn: Any = collected.spans["invoke_agent"].attributes
    assert (turn["gen_ai.usage.input_tokens"], turn["gen_ai.usage.output_tokens"]) == (200, 40)


def test_children_lie_within_the_time_of_their_turn(collected: Collected) -> None:
    call_tool(collected)
    turn = collected.spans.pop("invoke_agent")
    for span in collected.spans.values():
        assert turn.start_time is not None
        assert turn.end_time is not None
        assert span.start_time is not None
        assert span.end_time is not None
        assert turn.start_time <= span.start_time <= span.end_time <= turn.end_time


def test_tokens_and_durations_are_metrics(collected: Collected) -> None:
    call_tool(collected)
    metrics = collected.metrics
    tokens = {point.attributes["gen_ai.token.type"]: point for point in metrics["gen_ai.client.token.usage"]}
    assert (tokens["input"].sum, tokens["output"].sum, tokens["input"].count) == (200, 40, 2)
    assert tokens["input"].explicit_bounds[:3] == (1, 4, 16)
    (calls,) = metrics["gen_ai.client.operation.duration"]
    assert (calls.count, calls.attributes["gen_ai.operation.name"]) == (2, "chat")
    assert [point.count for point in metrics["gen_ai.execute_tool.duration"]] == [1]
    assert [point.count for point in metrics["gen_ai.invoke_agent.duration"]] == [1]


def test_nothing_has_content(collected: Collected) -> None:
    call_tool(collected)
    with pytest.raises(RequestRefused):
        Chat(Scripted(RequestRefused(SECRET)), on_event=collected.telemetry).send(SECRET)
    assert SECRET not in collected.dump()


def test_a_failure_is_an_error_with_its_type(collected: Collected) -> None:
    with pytest.raises(RequestRefused):
        Chat(Scripted(RequestRefused("no")), on_event=collected.telemetry).send("x")
    for span in collected.spans.values():
        assert (span.status.status_code, (span.attributes or {})["error.type"]) == (StatusCode.ERROR, "RequestRefused")
    (point,) = collected.metrics["gen_ai.client.operation.duration"]
    assert point.attributes["error.type"] == "RequestRefused"


def test_an_interrupted_turn_is_no_error(collected: Collected) -> None:
    with Chat(Scripted(says("One two three.")), on_event=collected.telemetry).stream("x") as stream:
        next(event for event in stream if isinstance(event, Text))
    turn = collected.spans["invoke_agent"]
    assert (turn.status.status_code, (turn.attributes or {})["longtalk.interrupted"]) == (StatusCode.UNSET, True)


def test_a_retry_is_an_event_of_its_turn(collected: Collected) -> None:
    Chat(Scripted(Overloaded("no", retry_after=0.01), says("a")), on_event=collected.telemetry).send("x")
    (event,) = collected.spans["invoke_agent"].events
    assert (event.name, event.attributes) == (
        "longtalk.retry",
        {"error.type": "Overloaded", "longtalk.retry.wait": 0.01},
    )


def test_a_compaction_is_a_span(collected: Collected) -> None:
    talk = Conversation(
        "c", model=Scripted(*map(says, "abcde")), store=InMemory(), policy=KeepLast(1), on_event=collected.telemetry
    )
    for text in "vwxyz":
        talk.send(text)
    assert collected.spans["longtalk.compaction"].parent is not None


def test_a_turn_belongs_to_the_span_that_is_current(collected: Collected) -> None:
    with collected.tracers.get_tracer("app").start_as_current_span("request") as outer:
        Chat(Scripted(says("a")), on_event=collected.telemetry).send("x")
    parent: Any = collected.spans["invoke_agent"].parent
    assert parent.span_id == outer.get_span_context().span_id


def test_one_object_serves_many_threads(collected: Collected) -> None:
    def talk() -> None:
        for _ in range(5):
            Chat(Scripted(says("a", usage=USAGE)), on_event=collected.telemetry).send("x")

    threads = [threading.Thread(target=talk) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (point,) = collected.metrics["gen_ai.invoke_agent.duration"]
    assert point.count == 20


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic", "gemini"])
def test_content_is_in_spans_on_request_only(wire: str) -> None:
    asked = Collected(content=True)
    for collected in (asked, Collected()):
        steps = says(calls=[("c1", "lookup", {"q": "Ada"})], wire=wire), says("Found her.", wire=wire)
        provider = Scripted(*steps, wire=HTTP_WIRES[wire])
        Chat(provider, on_event=collected.telemetry).send("Who?", system="Be brief.", tools=[lookup])
    assert "Who?" not in collected.dump()
    *_, call = [span for span in asked.finished if span.name.startswith("chat")]
    said: Any = {name: json.loads(value) for name, value in call.attributes.items() if "messages" in name}
    user, calling, result = said["gen_ai.input.messages"]
    assert user == {"role": "user", "parts": [{"type": "text", "content": "Who?"}]}
    (part,) = calling["parts"]
    assert (part["type"], part["name"], part["arguments"]) == ("tool_call", "lookup", {"q": "Ada"})
    assert (result["parts"][0]["type"], result["parts"][0]["response"]) == ("tool_call_response", "about Ada")
    assert said["gen_ai.output.messages"] == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Found her."}], "finish_reason": "stop"}
    ]
    assert json.loads(call.attributes["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    run = asked.spans["execute_tool lookup"].attributes
    assert run is not None
    assert json.loads(str(run["gen_ai.tool.call.arguments"])) == {"q": "Ada"}
    assert run["gen_ai.tool.call.result"] == "about Ada"


def test_only_functions_that_ask_for_content_get_it() -> None:
    plain: list[Observation] = []
    collected = Collected(content=True)
    Chat(Scripted(says("Hi.")), on_event=join_observers(collected.telemetry, plain.append)).send("Who?")
    assert "Who?" in collected.dump()
    assert [each.content for each in plain] == [None, None]


def test_text_that_is_not_valid_unicode_can_be_exported() -> None:
    collected = Collected(content=True)
    Chat(Scripted(says("Hi.")), on_event=collected.telemetry).send("Half: \ud83d.")
    said = str(dict(collected.spans["chat model"].attributes or {})["gen_ai.input.messages"])
    assert "Half: " in said
    assert said.encode()

"""The types of the events on the surface of OpenAI. Each one that is sent is declared here, which mypy checks."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

EventType: TypeAlias = Literal[
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.output_item.added",
    "response.output_item.done",
    "response.content_part.added",
    "response.content_part.done",
    "response.output_text.delta",
    "response.output_text.annotation.added",
    "response.output_text.done",
    "response.refusal.delta",
    "response.refusal.done",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.custom_tool_call_input.delta",
    "response.custom_tool_call_input.done",
    "response.compaction.compacting",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "error",
]
"""The events of a streamed response. `error` is the answer to a refused message of a WebSocket."""


class Delta(TypedDict, total=False):
    """What a chunk of a chat completion adds."""

    role: Literal["assistant"]
    content: str
    reasoning_content: str
    tool_calls: list[dict[str, Any]]

"""The types of fields that requests of both surfaces have: bounded numbers, known words, and objects."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from longtalk.service.openai.fields import unsupported

Positive = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
TopLogprobs = Annotated[int, Meta(ge=0, le=20)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Verbosity = Literal["low", "medium", "high"]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]
ToolChoice = Literal["auto", "none", "required"]
Retention = Literal["in_memory", "24h"]


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """What the events of a streamed answer include."""

    include_obfuscation: bool | None = None


class ChatStreamOptions(StreamOptions, forbid_unknown_fields=True):
    """What the chunks of a streamed chat completion include."""

    include_usage: bool | None = None


class Reasoning(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How much the model reasons, and how much of it is shown."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: Literal["standard", "pro"] | None = None

    def to_fields(self) -> dict[str, Any]:
        """Return the parts that are given, by the names that errors use."""
        return {f"reasoning.{name}": value for name, value in msgspec.structs.asdict(self).items()}


class Text(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The form of the answer's text."""

    format: dict[str, Any] | None = None
    verbosity: Verbosity | None = None


class PromptCacheOptions(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How the provider caches the request."""

    mode: Literal["implicit", "explicit"] | None = None
    ttl: Literal["30m", "12h"] | None = None
    prewarm: bool | None = None
    comparison_response_id: str | None = None

    def check(self) -> None:
        """Raise `ApiError` for an option that is not supported."""
        if self.prewarm:
            raise unsupported("prompt_cache_options.prewarm")
        if self.comparison_response_id is not None:
            raise unsupported("prompt_cache_options.comparison_response_id")

    def to_fields(self) -> dict[str, Any]:
        """Return the parts that a provider may know, by the names that errors use."""
        return {"prompt_cache_options.mode": self.mode, "prompt_cache_options.ttl": self.ttl}

"""Token usage of a model call, in one form for all providers."""

from __future__ import annotations

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """Token counts that a provider reported.

    `input` includes `cached`, the tokens read from the provider's cache, and `written`, those written to it.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    written_1h: int = 0
    """The part of `written` that the provider keeps in its cache for an hour."""
    reasoning: int = 0
    """The part of `output` that the model spent on reasoning, where the provider reports it."""

    def to_dict(self) -> dict[str, int]:
        """Return the counts by name, for `json.dumps`. `msgspec.json.encode` takes the object itself."""
        return msgspec.structs.asdict(self)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.written + other.written,
            self.written_1h + other.written_1h,
            self.reasoning + other.reasoning,
        )

"""How many tokens a text, a message or a preamble has. (First version: the interface; the figures follow.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from longtalk import _json
from longtalk.tools import Tool


class Counter(Protocol):
    """Counts the tokens of a text."""

    def count(self, text: str) -> int: ...


class Estimator(msgspec.Struct, frozen=True):
    """A counter by character classes, per tokenizer family."""

    family: str = "o200k"

    def count(self, text: str) -> int:
        return (len(text) + 3) // 4


class Exact:
    """A real tokenizer. Needs the extra `[tokens]`."""

    def __init__(self, family: str = "o200k") -> None:
        from splintr import Tokenizer

        self.family = family
        self._tokenizer = Tokenizer.from_pretrained(f"{family}_base")

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode_ordinary(text.encode("utf-8", "replace").decode()))


def counter_for(model: str) -> Estimator:
    """The estimator for a model, by its label, such as `openai-chat:gpt-5.6`."""
    return Estimator("claude" if "claude" in model else "o200k")


def of_message(native: bytes, counter: Counter) -> int:
    """One message of any wire, as its exact JSON bytes."""
    return 4 + (len(native) + 3) // 4


def of_preamble(system: str | None, tools: Sequence[Tool], counter: Counter) -> int:
    """The system text and the tools."""
    total = counter.count(system) + 4 if system else 0
    return total + sum(8 + counter.count(f"{t.name} {t.description} {_json.text(t.schema) or ''}") for t in tools)

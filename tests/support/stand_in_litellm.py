"""A module in the place of LiteLLM, where that can't be installed: answers as it is told, in LiteLLM's shapes.

The real one is tried by `tests/real/test_litellm.py`.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

OK: dict[str, Any] = {
    "choices": [{"finish_reason": "stop", "index": 0, "message": {"role": "assistant", "content": "Hello!"}}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5},
}


def piece(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """A piece of a stream."""
    return {"choices": [{"index": 0, "delta": delta, **({"finish_reason": finish} if finish else {})}]}


class Made:
    """What it makes of an answer."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return copy.deepcopy(self._fields)


class Chunks:
    """What it makes of a stream. What is inside can be closed; an async one itself too."""

    def __init__(self, owner: StandIn, answers: list[Any]) -> None:
        self._answers = list(answers)
        self.completion_stream = self
        self._owner = owner
        # What the provider itself gave as a reason for the end.
        self.received_finish_reason = owner.received_finish_reason

    def _next(self) -> Made:
        if not self._answers:
            raise LookupError
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Made(answer)

    def close(self) -> None:
        self._owner.closed += 1


class SyncChunks(Chunks):
    def __iter__(self) -> Iterator[Made]:
        return self

    def __next__(self) -> Made:
        try:
            return self._next()
        except LookupError:
            raise StopIteration from None


class AsyncChunks(Chunks):
    def __aiter__(self) -> AsyncIterator[Made]:
        return self

    async def __anext__(self) -> Made:
        try:
            return self._next()
        except LookupError:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        self.close()


class StandIn(ModuleType):
    """The module: `say` what it answers next; `asked` is what it was called with."""

    def __init__(self) -> None:
        super().__init__("litellm")
        self.__spec__ = ModuleSpec("litellm", None)
        self.telemetry = True
        self.suppress_debug_info = False
        self.answers: list[Any] = []
        self.asked: list[dict[str, Any]] = []
        self.closed = 0
        self.received_finish_reason: str | None = "stop"

    @staticmethod
    def install(monkeypatch: pytest.MonkeyPatch) -> StandIn:
        module = StandIn()
        monkeypatch.setitem(sys.modules, "litellm", module)
        return module

    def say(self, *answers: Any) -> None:
        """Each is an answer, a list of pieces, or what goes wrong."""
        self.answers += answers

    def completion(self, **asked: Any) -> Any:
        return self._answer(asked, SyncChunks)

    async def acompletion(self, **asked: Any) -> Any:
        return self._answer(asked, AsyncChunks)

    def _answer(self, asked: dict[str, Any], chunks: type[Chunks]) -> Any:
        self.asked.append(asked)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return chunks(self, answer) if isinstance(answer, list) else Made(answer)

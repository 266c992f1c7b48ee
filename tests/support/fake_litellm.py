"""A fake `litellm` module that gives scripted answers in LiteLLM's formats, for environments without LiteLLM.

`tests/real/test_litellm.py` tests the real one.
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


def make_chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """Return a chunk of a stream."""
    return {"choices": [{"index": 0, "delta": delta, **({"finish_reason": finish} if finish else {})}]}


class FakeResponse:
    """A whole answer, in the form in which LiteLLM returns it."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return copy.deepcopy(self._fields)


class FakeStream:
    """A streamed answer. Its `completion_stream` can be closed; an async stream can also be closed itself."""

    def __init__(self, owner: FakeLiteLLM, answers: list[Any]) -> None:
        self._answers = list(answers)
        self.completion_stream = self
        self._owner = owner
        # The finish reason that the provider itself reported.
        self.received_finish_reason = owner.received_finish_reason

    def _next(self) -> FakeResponse:
        if not self._answers:
            raise LookupError
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return FakeResponse(answer)

    def close(self) -> None:
        self._owner.closed += 1


class SyncFakeStream(FakeStream):
    def __iter__(self) -> Iterator[FakeResponse]:
        return self

    def __next__(self) -> FakeResponse:
        try:
            return self._next()
        except LookupError:
            raise StopIteration from None


class AsyncFakeStream(FakeStream):
    def __aiter__(self) -> AsyncIterator[FakeResponse]:
        return self

    async def __anext__(self) -> FakeResponse:
        try:
            return self._next()
        except LookupError:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        self.close()


class FakeLiteLLM(ModuleType):
    """The module. `say` sets its next answers, and `asked` has the arguments of each call."""

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
    def install(monkeypatch: pytest.MonkeyPatch) -> FakeLiteLLM:
        module = FakeLiteLLM()
        monkeypatch.setitem(sys.modules, "litellm", module)
        return module

    def say(self, *answers: Any) -> None:
        """Add answers: each is a whole answer, a list of chunks, or an exception to raise."""
        self.answers += answers

    def completion(self, **asked: Any) -> Any:
        return self._answer(asked, SyncFakeStream)

    async def acompletion(self, **asked: Any) -> Any:
        return self._answer(asked, AsyncFakeStream)

    def _answer(self, asked: dict[str, Any], chunks: type[FakeStream]) -> Any:
        self.asked.append(asked)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return chunks(self, answer) if isinstance(answer, list) else FakeResponse(answer)

"""A scripted model for conversations with summaries. The test decides how each request for a summary ends.

Every request is validated by the rules of its wire. The outcome of a summary request is a text, a `Step`, the bytes of
an invalid answer, an exception, or `HANGS` for no answer at all. The last outcome is repeated.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncGenerator, Generator
from typing import Any, TypeAlias

import anyio
import pytest

from longtalk.memory.summary import Summary
from longtalk.models.call_cost import Prices
from longtalk.providers.base import Capabilities
from longtalk.stores.base import Store
from longtalk.testing import Step, says, validate
from longtalk.transcript.standing import Standing
from longtalk.wires import WIRES
from longtalk.wires.protocol import Wire
from tests.support.matrix import thin

HANGS = object()
Outcome: TypeAlias = str | Step | bytes | BaseException | object
WORDS = "So many words about bows and strings. "
SUMMARY_TEXT = (
    "Ada plays a violin of 1740. She asked about bows, strings and rosin; the luthier is Mr Ferri. Open: the price."
)
_PATIENCE = 60.0


@pytest.fixture(params=thin(["asyncio", "trio"], "asyncio"))
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run the async tests of a module that imports this fixture on both event loops."""
    return str(request.param)


def asks_for_summary(body: bytes) -> bool:
    """Return whether a request asks for a summary."""
    return b"<summary_request>" in body


class _Script:
    label = "scripted:model"
    model = "model"
    account = "scripted"

    def __init__(
        self,
        *outcomes: Outcome,
        wire: str = "openai-chat",
        window: int | None = None,
        prices: Prices | None = None,
        cache: bool = True,
        cache_seconds: int | None = None,
        steps: tuple[Step, ...] = (),
        words: int = 20,
    ) -> None:
        self.wire: Wire = WIRES[wire]
        self.defaults = self.wire.defaults
        self.capabilities = Capabilities(window=window, prices=prices, cache=cache, cache_seconds=cache_seconds)
        self.requests: list[bytes] = []
        self._outcomes = list(outcomes) or [SUMMARY_TEXT]
        self._steps = list(steps)
        self._words = words
        self._lock = threading.Lock()
        self.running = self.most = 0
        """The number of summaries being written now, and the largest number at any time."""

    @property
    def asked(self) -> list[bytes]:
        """The requests that ask for summaries."""
        return [body for body in self.requests if asks_for_summary(body)]

    @property
    def talked(self) -> list[bytes]:
        """The requests that are not for summaries."""
        return [body for body in self.requests if not asks_for_summary(body)]

    def next(self, body: bytes) -> Any:
        validate(body, wire=self.wire.name)
        with self._lock:
            self.requests.append(body)
            if asks_for_summary(body):
                outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
                return says(outcome, wire=self.wire.name) if isinstance(outcome, str) else outcome
            if self._steps:
                return self._steps.pop(0)
            return says(f"Answer {len(self.talked)}. {WORDS * self._words}", wire=self.wire.name)


class AsyncSummaryModel(_Script):
    """A summary model for async chats and conversations."""

    def __init__(self, *outcomes: Outcome, gate: AsyncGate | None = None, **settings: Any) -> None:
        super().__init__(*outcomes, **settings)
        self._gate = gate

    async def send(self, body: bytes) -> bytes:
        outcome = self.next(body)
        if asks_for_summary(body):
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                if self._gate is not None:
                    await self._gate.pass_through()
                if outcome is HANGS:
                    await anyio.sleep_forever()
            finally:
                self.running -= 1
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome if isinstance(outcome, bytes) else outcome.body

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        for data in self.next(body).events:
            yield data

    async def aclose(self) -> None:
        pass


class AsyncGate:
    """A gate that delays summaries until it is opened, or for a number of seconds."""

    def __init__(self, seconds: float | None = None) -> None:
        self.is_open = False
        self._seconds = seconds
        self._reached = 0

    async def pass_through(self) -> None:
        self._reached += 1
        if self._seconds is not None:
            await anyio.sleep(self._seconds)
            return
        while not self.is_open:  # noqa: ASYNC110
            await anyio.sleep(0.001)

    def open(self) -> None:
        self.is_open = True

    async def reached(self) -> None:
        with anyio.fail_after(_PATIENCE):
            while not self._reached:  # noqa: ASYNC110
                await anyio.sleep(0.001)


class SummaryModel(_Script):
    """A summary model for sync chats and conversations."""

    def __init__(self, *outcomes: Outcome, gate: Gate | None = None, **settings: Any) -> None:
        super().__init__(*outcomes, **settings)
        self._gate = gate

    def send(self, body: bytes) -> bytes:
        outcome = self.next(body)
        if asks_for_summary(body):
            with self._lock:
                self.running += 1
                self.most = max(self.most, self.running)
            try:
                if self._gate is not None:
                    self._gate.pass_through()
                if outcome is HANGS:
                    time.sleep(_PATIENCE)
            finally:
                with self._lock:
                    self.running -= 1
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome if isinstance(outcome, bytes) else outcome.body  # type: ignore[no-any-return]

    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        yield from self.next(body).events

    def close(self) -> None:
        pass


class Gate:
    """A gate that delays summaries until it is opened, or for a number of seconds."""

    def __init__(self, seconds: float | None = None) -> None:
        self._open, self._reached = threading.Event(), threading.Event()
        self._seconds = seconds

    def pass_through(self) -> None:
        self._reached.set()
        if self._seconds is not None:
            time.sleep(self._seconds)
            return
        assert self._open.wait(_PATIENCE)

    def open(self) -> None:
        self._open.set()

    def reached(self) -> None:
        assert self._reached.wait(_PATIENCE)


# Requests and records


def list_texts(body: bytes) -> list[str]:
    """Return the text of each message of a request."""
    found, whole = [], json.loads(body)
    for message in next(whole[name] for name in ("messages", "input", "contents") if name in whole):
        content = message.get("content") or message.get("output") or message.get("parts")
        found.append(content if isinstance(content, str) else " ".join(p.get("text", "") for p in content or ()))
    return found


def has_summary(body: bytes) -> bool:
    """Return whether a request begins with a summary."""
    return list_texts(body)[0].startswith("<earlier_conversation>")


def list_notice_kinds(reply: Any) -> list[str]:
    return [notice.kind for notice in reply.notices]


def read_record(store: Store, branch: str = "main", *, kind: str = "summary", of: Any = Summary) -> Any:
    """Return the newest record of a kind on a branch, decoded as `of`."""
    head = store.head("", "c", branch)
    assert head is not None
    return Standing(placed.record for placed in head.records).read_latest(kind, of)

"""A provider for tests that answers from a script.

Each step is used once, in order. The bodies of all requests are recorded in `requests`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from longtalk.providers.base import Capabilities
from longtalk.providers.scripted.script import Step, UnexpectedCall, UnusedSteps
from longtalk.wires.openai_chat import wire as openai_chat
from longtalk.wires.protocol import Wire


class AsyncScripted:
    """A provider that answers each request with the next step of a script.

    A step is a `Step` (see `longtalk.testing.says`) or an exception to raise. `requests` holds the body of each
    request. Used as a context manager, the provider checks on exit that every step was used. `window` is the context
    window of its model, in tokens.
    """

    label = "scripted:model"
    model = "model"
    account = "scripted"

    def __init__(self, *steps: Step | BaseException, wire: Wire = openai_chat.WIRE, window: int | None = None) -> None:
        self.wire = wire
        self.capabilities = Capabilities(window=window)
        self.defaults = wire.defaults
        self.requests: list[bytes] = []
        self._steps: list[Step | BaseException] = list(steps)

    def add(self, *steps: Step | BaseException) -> None:
        """Append steps to the script."""
        self._steps += steps

    async def send(self, body: bytes) -> bytes:
        return self._take_step(body).body

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        for data in self._take_step(body).events:
            if isinstance(data, BaseException):
                raise data
            yield data

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> AsyncScripted:
        return self

    async def __aexit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise `UnusedSteps` unless every step was used."""
        if self._steps:
            raise UnusedSteps(
                f"{len(self._steps)} steps of the script were not used: remove them, or make that many more model "
                "calls."
            )

    def _take_step(self, body: bytes) -> Step:
        self.requests.append(body)
        if not self._steps:
            raise UnexpectedCall(
                f"The script has no step for request {len(self.requests)}; add one. The request begins: {body[:200]!r}"
            )
        step = self._steps.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step

"""A sync wrapper for async providers, so that one suite can test both kinds."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from functools import partial

from anyio.from_thread import start_blocking_portal

from longtalk.providers.base import AsyncProvider, AsyncStatefulProvider
from longtalk.providers.redaction import Redactor


class Blocking:
    """A sync provider that wraps an async one, whose event loop runs in another thread until `close` is called."""

    def __init__(self, provider: AsyncProvider) -> None:
        self.label = provider.label
        self.model = provider.model
        self.account = provider.account
        self.wire = provider.wire
        self.capabilities = provider.capabilities
        self.defaults = provider.defaults
        self._provider = provider
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())
        self._stack.callback(self._portal.call, provider.aclose)
        if isinstance(provider, AsyncStatefulProvider):
            self.is_current = partial(self._portal.call, provider.is_current)
            self.open_conversation = partial(self._portal.call, provider.open_conversation)

    @property
    def redactor(self) -> Redactor:
        return getattr(self._provider, "redactor", None) or Redactor()

    def send(self, body: bytes) -> bytes:
        return self._portal.call(self._provider.send, body)

    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        events = self._provider.stream(body)
        try:
            while True:
                try:
                    data = self._portal.call(events.__anext__)
                except StopAsyncIteration:
                    return
                yield data
        finally:
            self._portal.call(events.aclose)

    def close(self) -> None:
        self._stack.close()

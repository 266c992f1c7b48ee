"""An async provider as a sync one, so that one suite tries both."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from functools import partial

from anyio.from_thread import start_blocking_portal

from longtalk.providers.base import AsyncKeeper, AsyncProvider


class Blocking:
    """Runs an async provider in an event loop of its own, in another thread, until it is closed."""

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
        if isinstance(provider, AsyncKeeper):
            self.stands = partial(self._portal.call, provider.stands)
            self.opened = partial(self._portal.call, provider.opened)

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

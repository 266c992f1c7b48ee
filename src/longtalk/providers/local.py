"""A real model on this machine: no key, no network once its weights are here.

The engine runs in a child process (`local_engine.py`), started with the first call and shared by all chats of this
process; from there on it is one more HTTP provider.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from longtalk._io import in_thread, shielded
from longtalk.providers.http import AsyncHTTP
from longtalk.providers.registry import Resolved

if TYPE_CHECKING:
    from longtalk.providers.local_engine import Engine


class AsyncLocal:
    """`local`, or `local:/path/to/model.gguf`."""

    def __init__(self, resolved: Resolved) -> None:
        self.label = resolved.label
        self.model = resolved.model
        self.wire = resolved.wire
        self.capabilities = resolved.capabilities
        self.account = "local"
        # The small built-in model does not know when to stop, and fills its window with one answer.
        self.defaults: Mapping[str, Any] = {} if resolved.model else {"max_tokens": 256}
        self._resolved = resolved
        self._http: AsyncHTTP | None = None
        self._url = ""

    async def send(self, body: bytes) -> bytes:
        return await (await self._engine()).send(body)

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        events = (await self._engine()).stream(body)
        try:
            async for data in events:
                yield data
        finally:
            # An answer that nobody reads any more would keep the engine from the next one.
            await shielded(events.aclose)

    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def _engine(self) -> AsyncHTTP:
        engine = await in_thread(self._start)
        if self._http is None or engine.url != self._url:
            await self.aclose()
            self._url = engine.url
            resolved = msgspec.structs.replace(self._resolved, base_url=f"{engine.url}/v1", key=engine.key)
            self._http = AsyncHTTP(resolved)
        return self._http

    def _start(self) -> Engine:
        from longtalk.providers.local_engine import engine, require_extra
        from longtalk.providers.weights import find

        require_extra()
        return engine(find(self.model), context=self.capabilities.window or 4096)

"""The local provider: a model on this machine that needs no key and, after its weights are downloaded, no network.

The engine runs in a child process (see `engine`). The first call starts it, and all chats of this process share it.
Requests are then sent to the engine over HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from longtalk._util.concurrency import run_in_thread, run_shielded
from longtalk.providers.http.provider import AsyncHTTP
from longtalk.providers.local.catalog import find_model
from longtalk.providers.local.progress import ask_for_progress, read_progress
from longtalk.providers.redaction import Redactor
from longtalk.providers.registry import ResolvedModel

if TYPE_CHECKING:
    from longtalk.providers.local.engine import Engine


class AsyncLocal:
    """The provider for `local`, `local:1.5b` and the like, and `local:/path/to/model.gguf`."""

    def __init__(self, resolved: ResolvedModel, *, timeout: float | None = None) -> None:
        self.label = resolved.label
        self.model = resolved.model
        self.wire = resolved.wire
        built_in = find_model(resolved.model)
        self.capabilities = resolved.capabilities
        if built_in is not None:
            self.capabilities = msgspec.structs.replace(
                resolved.capabilities, tools=built_in.tools, cards=built_in.cards
            )
        self.account = "local"
        # Small models answer best without chance, and often don't stop by themselves.
        self.defaults: Mapping[str, Any] = (
            {"max_tokens": built_in.max_tokens, "temperature": 0} if built_in is not None else {}
        )
        self.on_progress: Callable[[int, int], None] | None = None
        """Called while the model reads a prompt that is streamed, with the tokens read so far and those in all."""
        self._line = built_in.line if built_in is not None else ""
        self._resolved = resolved
        self._timeout = timeout
        self._http: AsyncHTTP | None = None
        self._url = ""

    @property
    def redactor(self) -> Redactor:
        """The redactor that knows the key of the engine."""
        return self._http.redactor if self._http is not None else Redactor()

    async def send(self, body: bytes) -> bytes:
        return await (await self._connect()).send(body)

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        report = self.on_progress
        events = (await self._connect()).stream(body if report is None else ask_for_progress(body))
        try:
            async for data in events:
                progress = read_progress(data) if report is not None else None
                if report is None or progress is None:
                    yield data
                else:
                    report(*progress)
        finally:
            # Otherwise the engine would finish an answer that is no longer read before it starts the next one.
            await run_shielded(events.aclose)

    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def _connect(self) -> AsyncHTTP:
        """Return the HTTP provider for the running engine. Start the engine if necessary."""
        engine = await run_in_thread(self._start_engine)
        if self._http is None or engine.url != self._url:
            await self.aclose()
            self._url = engine.url
            resolved = msgspec.structs.replace(self._resolved, base_url=f"{engine.url}/v1", key=engine.key)
            self._http = AsyncHTTP(resolved, timeout=self._timeout)
        return self._http

    def _start_engine(self) -> Engine:
        from longtalk.providers.local.engine import get_engine, require_extra
        from longtalk.providers.local.weights import find_weights

        require_extra()
        return get_engine(find_weights(self.model), context=self.capabilities.window or 4096, line=self._line)

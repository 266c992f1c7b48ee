"""Over a hundred additional providers through LiteLLM, which converts all of them to the format of OpenAI's chat API.

Requests and answers are not the provider's own bytes. LiteLLM converts both, and drops everything that has no place in
the common format. Errors are mapped from the provider's response if LiteLLM still has it (see `errors`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from longtalk._util import json_bytes
from longtalk._util.concurrency import ASYNC, run_in_thread, run_shielded
from longtalk.errors import BadAnswer
from longtalk.providers.litellm.chunks import ChunkReader, to_dict
from longtalk.providers.litellm.errors import load_litellm, map_error, require_extra
from longtalk.providers.redaction import Redactor, find_in_url, find_named
from longtalk.providers.registry import ResolvedModel


class AsyncLiteLLM:
    """The provider for `litellm:MODEL`, where MODEL is LiteLLM's name for the model, such as `bedrock/…`."""

    def __init__(self, resolved: ResolvedModel, *, timeout: float | None = None) -> None:
        require_extra()
        self.label = resolved.label
        self.model = resolved.model
        self.wire = resolved.wire
        self.capabilities = resolved.capabilities
        self.account = resolved.account
        self.defaults: Mapping[str, Any] = resolved.wire.defaults
        # The turn decides about retries.
        self._settings: dict[str, Any] = {
            "api_key": resolved.key,
            "api_base": resolved.base_url or None,
            "max_retries": 0,
            "num_retries": 0,
            **({} if timeout is None else {"timeout": timeout}),
        }
        self._options: dict[str, Any] = {}
        """The options of the last request, kept because some of LiteLLM's options are credentials to redact."""

        def find_secrets() -> list[str]:
            # LiteLLM reads keys of many names from the environment.
            named = (*find_named(os.environ), *find_named(self._options))
            return [resolved.key or "", *find_in_url(resolved.base_url), *named]

        self.redactor = Redactor(find_secrets)

    async def send(self, body: bytes) -> bytes:
        return json_bytes.encode(to_dict(await self._request(body)))

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        chunks = await self._request(body)
        reader = ChunkReader()
        with self.redactor:
            try:
                async for chunk in chunks:
                    fields = reader.read(chunk, stream=chunks)
                    if reader.has_content:
                        yield json_bytes.encode(fields)
            except Exception as problem:
                raise map_error(problem, self.label, begun=reader.begun, redactor=self.redactor) from None
            finally:
                await run_shielded(lambda: _close(chunks))
        if not reader.has_content:
            raise BadAnswer(f"{self.label} sent a stream without an answer.")
        if reader.finished:
            yield b"[DONE]"

    async def aclose(self) -> None:
        pass

    async def _request(self, body: bytes) -> Any:
        litellm = await run_in_thread(load_litellm)
        complete = litellm.acompletion if ASYNC else litellm.completion
        with self.redactor:
            self._options = {**json_bytes.value(body), **self._settings}
            try:
                return await complete(**self._options)
            except Exception as problem:
                raise map_error(problem, self.label, begun=False, redactor=self.redactor) from None


async def _close(chunks: Any) -> None:
    """Close a stream of chunks. A sync stream has no close method, so the stream inside it is closed."""
    close = getattr(chunks, "aclose", None) or getattr(getattr(chunks, "completion_stream", None), "close", None)
    if close is not None:
        await close()

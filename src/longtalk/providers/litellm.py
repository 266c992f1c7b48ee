"""LiteLLM: the other hundred providers, through a library that gives them all the form of OpenAI's chat.

What comes and goes is not the provider's own bytes: LiteLLM turns a request into the provider's form and its answer
back, and what has no place in the common form is lost on the way. What goes wrong is told by what the provider said,
where LiteLLM still has that (`litellm_errors.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from longtalk import _json
from longtalk._io import ASYNC, in_thread, shielded
from longtalk.errors import BadAnswer
from longtalk.providers.litellm_errors import error_of, library, require_extra
from longtalk.providers.litellm_pieces import Pieces, plain
from longtalk.providers.registry import Resolved


class AsyncLiteLLM:
    """`litellm:MODEL`, where the model has the name that LiteLLM gives it, such as `litellm:bedrock/…`."""

    def __init__(self, resolved: Resolved) -> None:
        require_extra()
        self.label = resolved.label
        self.model = resolved.model
        self.wire = resolved.wire
        self.capabilities = resolved.capabilities
        self.account = resolved.account
        self.defaults: Mapping[str, Any] = resolved.wire.defaults
        # Whether to try again is the turn's to say.
        self._set = {"api_key": resolved.key, "api_base": resolved.base_url or None, "max_retries": 0, "num_retries": 0}

    async def send(self, body: bytes) -> bytes:
        return _json.encode(plain(await self._ask(body)))

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        chunks = await self._ask(body)
        pieces = Pieces()
        try:
            async for chunk in chunks:
                piece = pieces.take(chunk, of=chunks)
                if pieces.said:
                    yield _json.encode(piece)
        except Exception as problem:
            raise error_of(problem, self.label, begun=pieces.begun) from problem
        finally:
            await shielded(lambda: _let_go(chunks))
        if not pieces.said:
            raise BadAnswer(f"{self.label} was asked for a stream and sent nothing in it.")
        if pieces.finished:
            yield b"[DONE]"

    async def aclose(self) -> None:
        pass

    async def _ask(self, body: bytes) -> Any:
        litellm = await in_thread(library)
        complete = litellm.acompletion if ASYNC else litellm.completion
        try:
            return await complete(**{**_json.value(body), **self._set})
        except Exception as problem:
            raise error_of(problem, self.label, begun=False) from problem


async def _let_go(chunks: Any) -> None:
    """Close a stream that may not be at its end. A sync one can't be closed itself."""
    close = getattr(chunks, "aclose", None) or getattr(getattr(chunks, "completion_stream", None), "close", None)
    if close is not None:
        await close()

"""The client of a provider: sends requests, and parses answers and errors with the provider's wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from longtalk._util.concurrency import run_shielded
from longtalk.errors import BadAnswer, ContextOverflow, ProviderError, RequestRefused
from longtalk.providers.base import AsyncProvider
from longtalk.providers.error_mapping import error_from_response
from longtalk.providers.redaction import Redactor
from longtalk.wires.protocol import ReportedError


class AsyncProviderClient:
    """Sends bytes to a provider and reads what comes back. Its errors are redacted."""

    def __init__(self, provider: AsyncProvider) -> None:
        self._provider = provider
        self._wire = provider.wire

    @property
    def redactor(self) -> Redactor:
        """The provider's redactor; for a provider without one, a redactor of texts that look like keys."""
        return getattr(self._provider, "redactor", None) or Redactor()

    async def send(self, body: bytes) -> bytes:
        """Send a request and return the response body. It is not parsed yet, but a refusal in it is raised."""
        with self.redactor:
            data = await self._provider.send(body)
        if b'error"' in data:
            self._heed_refusal(self._wire.parse, data)
        return data

    async def open(self, body: bytes) -> tuple[list[bytes], AsyncGenerator[bytes, None]]:
        """Begin a stream. Return its events up to the first one of an answer, and the source of the others."""
        source = self._provider.stream(body)
        accumulator = self._wire.new_accumulator()
        first: list[bytes] = []
        try:
            with self.redactor:
                while (data := await anext(source, None)) is not None:
                    first.append(data)
                    self._heed_refusal(accumulator.feed, data)
                    if accumulator.started:
                        break
                return first, source
        except BaseException:
            await run_shielded(source.aclose)
            raise

    def understand(self, read: Callable[..., Any], *data: bytes) -> Any:
        """Return what a parser makes of the provider's bytes; raise a `ProviderError` if it can't read them."""
        with self.redactor:
            try:
                return read(*data)
            except ValueError as problem:
                raise self.misread(problem, b"".join(data)) from None

    def misread(self, problem: ValueError, said: bytes) -> ProviderError:
        """Return the error for bytes that can't be read: the one that they report, or `BadAnswer`."""
        label, redactor = self._provider.label, self.redactor
        if isinstance(problem, ReportedError):
            by_sdk = getattr(self._provider, "by_sdk", False)
            return error_from_response(label, 0, {}, problem.error, by_sdk=by_sdk, redactor=redactor)
        said = redactor.redact_bytes(said)
        excerpt = " ".join(said.decode("utf-8", "replace").split())[:200]
        return BadAnswer(f"{label} sent an answer that can't be read ({problem}): {excerpt!r}", body=said)

    def _heed_refusal(self, read: Callable[[bytes], Any], data: bytes) -> None:
        """Raise if the body is a refusal with a good status, as some servers send. Other problems show in parsing."""
        try:
            self.understand(read, data)
        except (ContextOverflow, RequestRefused):
            raise
        except ProviderError:
            pass

"""A client for a provider: it sends requests, and parses answers and errors with the provider's wire."""

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
    """A client that sends request bodies to a provider and parses the responses.

    Secrets are removed from its errors.
    """

    def __init__(self, provider: AsyncProvider) -> None:
        self._provider = provider
        self._wire = provider.wire
        self.redactor: Redactor = getattr(provider, "redactor", None) or Redactor()
        """The provider's redactor; for a provider without one, a redactor of texts that look like keys."""

    async def send(self, body: bytes) -> bytes:
        """Send a request and return the unparsed response body.

        Raise a `ProviderError` if the body reports an error.
        """
        with self.redactor:
            data = await self._provider.send(body)
        if b'error"' in data:
            self._heed_refusal(self._wire.parse, data)
        return data

    async def open(self, body: bytes) -> tuple[list[bytes], AsyncGenerator[bytes, None]]:
        """Start a stream.

        Return its events up to the first one of the answer, and a generator for the remaining events.
        """
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
        """Return the result of parsing the provider's bytes. Raise a `ProviderError` if they can't be parsed."""
        with self.redactor:
            try:
                return read(*data)
            except ValueError as problem:
                raise self.misread(problem, b"".join(data)) from None

    def misread(self, problem: ValueError, said: bytes) -> ProviderError:
        """Return the error that unparsable bytes report or, if they report none, a `BadAnswer`."""
        label, redactor = self._provider.label, self.redactor
        if isinstance(problem, ReportedError):
            by_sdk = getattr(self._provider, "by_sdk", False)
            return error_from_response(label, 0, {}, problem.error, by_sdk=by_sdk, redactor=redactor)
        said = redactor.redact_bytes(said)
        excerpt = " ".join(said.decode("utf-8", "replace").split())[:200]
        return BadAnswer(f"{label} sent an answer that can't be read ({problem}): {excerpt!r}", body=said)

    def _heed_refusal(self, read: Callable[[bytes], Any], data: bytes) -> None:
        """Raise a `ProviderError` if a body with a success status reports an error, as some servers send it.

        Other problems are found when the body is parsed.
        """
        try:
            self.understand(read, data)
        except (ContextOverflow, RequestRefused):
            raise
        except ProviderError:
            pass

"""The line to a provider: bytes out, and what the wire makes of those that come back."""

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
    """A provider, and its wire."""

    def __init__(self, provider: AsyncProvider) -> None:
        self._provider = provider
        self._wire = provider.wire

    @property
    def redactor(self) -> Redactor:
        """The provider's redactor. A provider without one may still quote what plainly looks like a key."""
        return getattr(self._provider, "redactor", None) or Redactor()

    async def send(self, body: bytes) -> bytes:
        """Ask for a whole answer. It is not read yet, but a refusal is raised."""
        with self.redactor:
            data = await self._provider.send(body)
        if b'error"' in data:
            self._heed_refusal(self._wire.parse, data)
        return data

    async def open(self, body: bytes) -> tuple[list[bytes], AsyncGenerator[bytes, None]]:
        """Begin a stream: its first pieces, up to the first that is of an answer, and where the others come from."""
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
        """What the wire makes of the provider's bytes; what it can't read is the provider's fault."""
        with self.redactor:
            try:
                return read(*data)
            except ValueError as problem:
                raise self.misread(problem, b"".join(data)) from None

    def misread(self, problem: ValueError, said: bytes) -> ProviderError:
        """The error that bytes are which can't be read."""
        label, redactor = self._provider.label, self.redactor
        if isinstance(problem, ReportedError):
            by_sdk = getattr(self._provider, "by_sdk", False)
            return error_from_response(label, 0, {}, problem.error, by_sdk=by_sdk, redactor=redactor)
        said = redactor.redact_bytes(said)
        excerpt = " ".join(said.decode("utf-8", "replace").split())[:200]
        return BadAnswer(f"{label} sent an answer that can't be read ({problem}): {excerpt!r}", body=said)

    def _heed_refusal(self, read: Callable[[bytes], Any], data: bytes) -> None:
        """Some servers refuse a request with a good status. All else that went wrong is told when it is read."""
        try:
            self.understand(read, data)
        except (ContextOverflow, RequestRefused):
            raise
        except ProviderError:
            pass

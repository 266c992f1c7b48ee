"""Providers behind HTTP.

Bodies go out and come back as bytes. Nothing is retried here: an error says whether it may be, and the turn, which
knows whether anything has arrived, decides.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from longtalk import _json
from longtalk._io import ClientHolder
from longtalk.errors import BadAnswer, InputError, ProviderError, StreamCut, Unreachable
from longtalk.providers.failures import failure
from longtalk.providers.registry import Resolved
from longtalk.providers.sse import Events

CONNECT_SECONDS = 10.0
# A model may think for minutes before its first byte.
SILENCE_SECONDS = 600.0
ERROR_BYTES = 100_000
_FRAMES = "application/vnd.amazon.eventstream"


class AsyncHTTP:
    """A provider at an address."""

    def __init__(self, resolved: Resolved, *, client: Any = None) -> None:
        self.label = resolved.label
        self.model = resolved.model
        self.wire = resolved.wire
        self.capabilities = resolved.capabilities
        self.account = resolved.account
        self.defaults: Mapping[str, Any] = resolved.wire.defaults
        self._base_url = resolved.base_url
        self._headers = {"content-type": "application/json", **resolved.wire.headers(resolved.key)}
        self._client = ClientHolder(client, **_settings(resolved.base_url))
        self.by_sdk: bool = getattr(client, "is_sdk", False)
        """Whether it is asked by a client that has an address and a key of its own."""

    async def send(self, body: bytes) -> bytes:
        return await self._whole("POST", self.wire.path(self.model, stream=False), body)

    async def call(self, method: str, path: str, body: bytes | None = None) -> dict[str, bytes]:
        """Ask for something else than an answer: the fields of the JSON that comes."""
        said = await self._whole(method, path, body)
        try:
            return _json.fields(said)
        except ValueError as problem:
            raise BadAnswer(f"{self.label} sent something that can't be read ({problem}).", body=said) from None

    async def _whole(self, method: str, path: str, body: bytes | None) -> bytes:
        import httpx2

        chunks: list[bytes] = []
        try:
            async with self._request(method, path, body) as answer:
                if answer.status_code >= 300:
                    raise await self._failure(answer)
                async for chunk in answer.aiter_bytes():
                    chunks.append(chunk)  # noqa: PERF401  # what has come is known when the rest does not
        except (httpx2.HTTPError, httpx2.InvalidURL) as problem:
            raise self._trouble(problem, begun=bool(chunks)) from _told(problem)
        return b"".join(chunks)

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        import httpx2

        begun, found = b"", False
        try:
            async with self._request("POST", self.wire.path(self.model, stream=True), body) as answer:
                if answer.status_code >= 300:
                    raise await self._failure(answer)
                events = _events(answer)
                async for chunk in _unpacked(answer):
                    begun = begun or chunk[:500]
                    for data in events.feed(chunk):
                        found = True
                        yield data
                for data in events.end():
                    found = True
                    yield data
        except (httpx2.HTTPError, httpx2.InvalidURL) as problem:
            raise self._trouble(problem, begun=bool(begun)) from _told(problem)
        if not found:
            said = " ".join(begun.decode("utf-8", "replace").split())[:200]
            raise BadAnswer(
                f"{self.label} was asked for a stream and sent none, but {said or 'nothing'!r}.", body=begun
            )

    def _request(self, method: str, path: str, body: bytes | None) -> Any:
        client = self._client.get()
        if getattr(client, "is_closed", False):
            raise InputError(f"The client of {self.label} is closed: hand in one that is open.")
        return client.stream(method, self._base_url + path, content=body, headers=self._headers)

    async def _failure(self, answer: Any) -> ProviderError:
        """The error that an answer is. Of a long one the beginning says enough."""
        said = b""
        async for chunk in answer.aiter_bytes():
            said += chunk
            if len(said) > ERROR_BYTES:
                break
        return failure(self.label, answer.status_code, answer.headers, said[:ERROR_BYTES], by_sdk=self.by_sdk)

    async def aclose(self) -> None:
        await self._client.aclose()

    def _trouble(self, problem: Exception, *, begun: bool) -> ProviderError:
        import httpx2

        # No secret is quoted: neither one in the address, nor in the header that a local protocol error shows.
        address = re.sub(r"//[^/@]*@", "//", re.sub(r"[?#].*", "", self._base_url)).rstrip("/")
        quiet = isinstance(problem, httpx2.LocalProtocolError)
        why = type(problem).__name__ if quiet else str(problem).rstrip(".") or type(problem).__name__
        if isinstance(problem, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
            return Unreachable(f"The address {address!r} of {self.label} is not one: {why}.", retryable=False)
        if isinstance(problem, httpx2.DecodingError):
            return BadAnswer(f"{self.label} sent a body that can't be unpacked: {why}.")
        if begun:
            return StreamCut(f"The answer of {self.label} broke off: {why}.")
        where = f"{self.label} at {address}"
        if isinstance(problem, httpx2.ReadTimeout):
            # Waiting as long once more is nobody's wish.
            return Unreachable(f"No answer from {where} within the time limit ({why}).", retryable=False)
        setting = "client's address" if self.by_sdk else "address (base_url=)"
        return Unreachable(f"Can't reach {where}: {why}. Is the server running, and the {setting} right?")


def _told(problem: Exception) -> Exception | None:
    """What an error comes from, unless that would show a header with a key in it."""
    import httpx2

    return None if isinstance(problem, httpx2.LocalProtocolError) else problem


def _events(answer: Any) -> Any:
    """What takes the events out of the bytes of a stream."""
    if not answer.headers.get("content-type", "").startswith(_FRAMES):
        return Events()
    from longtalk.providers.frames import Frames

    return Frames()


def _unpacked(answer: Any) -> Any:
    """The body of an answer as it comes. Of one that nobody has packed or read yet there is nothing to unpack."""
    as_sent = "content-encoding" not in answer.headers and not answer.is_stream_consumed
    return answer.aiter_raw() if as_sent else answer.aiter_bytes()


def _settings(base_url: str) -> dict[str, Any]:
    """Of a client that is made here: a server on this machine is never behind the proxy that the environment names."""
    here = any(host in base_url for host in ("://127.", "://localhost", "://[::1]"))
    # Certificates take a while to load, and nothing is encrypted on the way to a plain address on this machine.
    encrypted = not (here and base_url.lower().startswith("http://"))
    # In order: to connect, to read, to write, to wait for a free connection.
    timeout = (CONNECT_SECONDS, SILENCE_SECONDS, SILENCE_SECONDS, None)
    return {"trust_env": not here, "verify": encrypted, "timeout": timeout}

"""Providers that are reached over HTTP.

Request and response bodies are passed on as bytes. Nothing is retried here. The error says whether a retry may help,
and the turn decides, because it knows whether any part of the answer has arrived.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from longtalk._util import json_bytes
from longtalk._util.concurrency import ClientHolder
from longtalk.errors import BadAnswer, InputError, ProviderError, StreamCut, Unreachable
from longtalk.providers.error_mapping import error_from_response
from longtalk.providers.http.sse import EventParser
from longtalk.providers.redaction import Redactor, find_in_client, find_in_request, find_in_url
from longtalk.providers.registry import PROVIDERS, ResolvedModel

CONNECT_SECONDS = 10.0
# A model may think for minutes before its first byte.
SILENCE_SECONDS = 600.0
ERROR_BYTES = 100_000
_LONGEST_SECRET = 10_000
_AWS_EVENTSTREAM = "application/vnd.amazon.eventstream"


class AsyncHTTP:
    """A provider that is reached at an HTTP address."""

    own_address = False
    """Whether the caller gave an address or a client, so that the label alone does not lead to the same server."""

    def __init__(self, resolved: ResolvedModel, *, client: Any = None, timeout: float | None = None) -> None:
        """Create a provider for a resolved model.

        `timeout` limits, in seconds, each wait for a connection or for more bytes.
        """
        self.label = resolved.label
        self.model = resolved.model
        self.wire = resolved.wire
        self.capabilities = resolved.capabilities
        self.account = resolved.account
        self.defaults: Mapping[str, Any] = resolved.wire.defaults
        self._base_url = resolved.base_url
        self._headers = {"content-type": "application/json", **resolved.wire.headers(resolved.key)}
        self._client = ClientHolder(client, **_client_settings(resolved.base_url))
        self._timeout = timeout
        self._sent_secrets: list[str] = []

        def find_secrets() -> list[str]:
            given = [resolved.key or "", *find_in_url(resolved.base_url), *find_in_client(client)]
            return given + self._sent_secrets

        self.redactor = Redactor(find_secrets)
        self.by_sdk: bool = getattr(client, "is_sdk", False)
        """True if an SDK client with its own address and key sends the requests."""

    async def send(self, body: bytes) -> bytes:
        return await self._send_and_read("POST", self.wire.path(self.model, stream=False), body)

    async def call(self, method: str, path: str, body: bytes | None = None) -> dict[str, bytes]:
        """Call another endpoint of the provider's API and return the fields of the JSON object in its response."""
        response = await self._send_and_read(method, path, body)
        with self.redactor:
            try:
                return json_bytes.fields(response)
            except ValueError as problem:
                raise BadAnswer(f"{self.label} sent an answer that can't be read ({problem}).", body=response) from None

    async def _send_and_read(self, method: str, path: str, body: bytes | None) -> bytes:
        import httpx2

        chunks: list[bytes] = []
        with self.redactor:
            try:
                async with self._request(method, path, body) as response:
                    await self._check_status(response)
                    async for chunk in response.aiter_bytes():
                        chunks.append(chunk)  # noqa: PERF401  # keeps the chunks received before an error
            except (httpx2.HTTPError, httpx2.InvalidURL) as problem:
                raise self._connection_error(problem, begun=bool(chunks)) from None
        return b"".join(chunks)

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        import httpx2

        start, found = b"", False
        with self.redactor:
            try:
                async with self._request("POST", self.wire.path(self.model, stream=True), body) as response:
                    await self._check_status(response)
                    events = _choose_parser(response)
                    async for chunk in _iter_body(response):
                        start = start or chunk[:_LONGEST_SECRET]
                        for data in events.feed(chunk):
                            found = True
                            yield data
                    for data in events.end():
                        found = True
                        yield data
            except (httpx2.HTTPError, httpx2.InvalidURL) as problem:
                raise self._connection_error(problem, begun=bool(start)) from None
            if not found:
                start = self.redactor.redact_bytes(start)[:500]
                text = " ".join(start.decode("utf-8", "replace").split())[:200]
                raise BadAnswer(
                    f"{self.label} was asked for a stream of events, but sent {text or 'nothing'!r}.", body=start
                )

    def _request(self, method: str, path: str, body: bytes | None) -> Any:
        client = self._client.get()
        if getattr(client, "is_closed", False):
            raise InputError(f"The client of {self.label} is closed: pass an open one.")
        limits: dict[str, Any] = {}
        if self._timeout is not None:
            import httpx2

            limits["timeout"] = httpx2.Timeout(self._timeout, connect=min(self._timeout, CONNECT_SECONDS))
        return client.stream(method, self._base_url + path, content=body, headers=self._headers, **limits)

    async def _check_status(self, response: Any) -> None:
        """Raise a `ProviderError` if a response has an error status, with at most `ERROR_BYTES` of its body."""
        self._sent_secrets = find_in_request(response)
        if response.status_code < 300:
            return
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > ERROR_BYTES + _LONGEST_SECRET:
                break
        # Redacted before it is cut: half a secret would not be recognized.
        body = self.redactor.redact_bytes(body)[:ERROR_BYTES]
        raise error_from_response(
            self.label, response.status_code, response.headers, body, by_sdk=self.by_sdk, redactor=self.redactor
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    def _connection_error(self, problem: Exception, *, begun: bool) -> ProviderError:
        import httpx2

        # Quote no secret: the address may contain one, and a local protocol error shows a header that does.
        address = re.sub(r"//[^/@]*@", "//", re.sub(r"[?#].*", "", self._base_url)).rstrip("/")
        secret = isinstance(problem, httpx2.LocalProtocolError)
        cause = type(problem).__name__ if secret else str(problem).rstrip(".") or type(problem).__name__
        if isinstance(problem, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
            return Unreachable(f"The address {address!r} of {self.label} is not valid: {cause}.", retryable=False)
        if isinstance(problem, httpx2.DecodingError):
            return BadAnswer(f"{self.label} sent a body that can't be decompressed: {cause}.")
        if begun:
            return StreamCut(f"The answer of {self.label} ended early: {cause}.")
        where = f"{self.label} at {address}"
        if isinstance(problem, httpx2.ReadTimeout):
            # A retry would make the caller wait for the whole time limit again.
            return Unreachable(f"No answer from {where} within the time limit ({cause}).", retryable=False)
        if _is_public(self.label, address):
            return Unreachable(
                f"No connection to {address.split('/')[2]}, the server of {self.label}: {cause}. Check the internet "
                "connection and, if you need one, the proxy (HTTPS_PROXY)."
            )
        setting = "client's address" if self.by_sdk else "address (base_url=)"
        return Unreachable(
            f"Can't reach {where}: {cause}. Check that the server is running and that the {setting} is right."
        )


def _is_public(label: str, address: str) -> bool:
    """Return True if an address is that of the provider's own server on the internet."""
    known = PROVIDERS.get(label.partition(":")[0])
    return known is not None and address.startswith("https://") and known.base_url == address


def _choose_parser(response: Any) -> Any:
    """Return the parser for the event format of a streamed response."""
    if not response.headers.get("content-type", "").startswith(_AWS_EVENTSTREAM):
        return EventParser()
    from longtalk.providers.sdk.aws_eventstream import FrameParser

    return FrameParser()


def _iter_body(response: Any) -> Any:
    """Return an iterator over the body of a response. Skip decoding if the body is uncompressed and still unread."""
    is_raw = "content-encoding" not in response.headers and not response.is_stream_consumed
    return response.aiter_raw() if is_raw else response.aiter_bytes()


def _client_settings(base_url: str) -> dict[str, Any]:
    """Return the settings of the HTTP client. Proxy settings are ignored for a server on this machine."""
    local = any(host in base_url for host in ("://127.", "://localhost", "://[::1]"))
    # Loading certificates takes a while, and a plain HTTP address on this machine needs none.
    encrypted = not (local and base_url.lower().startswith("http://"))
    # Seconds to connect, to read, to write, and to wait for a free connection.
    timeout = (CONNECT_SECONDS, SILENCE_SECONDS, SILENCE_SECONDS, None)
    return {"trust_env": not local, "verify": encrypted, "timeout": timeout}

"""Send requests through a vendor's SDK client, with its address, credentials, signing, proxies and time limits.

`AsyncSDK` takes the place of an HTTP client and passes bytes on. The SDK does not compose requests, parse answers or
retry. Its errors are raised as HTTP errors, or as `AuthFailed`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from longtalk._util.concurrency import ASYNC
from longtalk.errors import AuthFailed, InputError
from longtalk.providers.registry import ResolvedModel, resolve
from longtalk.providers.sdk.clouds import (
    CLOUD_VERSIONS,
    WIRES,
    Vendor,
    adapt_request,
    check_client,
    identify_account,
    read_address,
)


class AsyncSDK:
    """An adapter that gives an SDK client the interface of an HTTP client."""

    is_sdk = True

    def __init__(self, client: Any, vendor: Vendor, resolved: ResolvedModel) -> None:
        self._client = client
        self._vendor = vendor
        self._model = resolved.model
        self._label = resolved.label
        self._base_url = resolved.base_url
        # The wire names the API version it speaks, which may differ from the version the SDK was made for.
        self._headers = {} if vendor.cloud in CLOUD_VERSIONS else resolved.wire.headers(None)

    @property
    def is_closed(self) -> bool:
        return bool(self._client.is_closed())

    def stream(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None,
        headers: Any,  # noqa: ARG002
        timeout: Any = None,
    ) -> AsyncSDKResponse:
        """Return a context manager that sends a request.

        `headers` is ignored, because the client and the wire set the headers. Without `timeout`, the client's applies.
        """
        return AsyncSDKResponse(self, method, url.removeprefix(self._base_url), content, timeout)

    async def request(self, method: str, path: str, content: bytes | None, timeout: Any) -> Any:
        """Send a request and return the response, whatever its status is. Its body has not been read yet."""
        import httpx2

        path, content = adapt_request(self._client, self._vendor, self._model, path, content)
        # The turn decides about retries, and following a redirect would send the key to another address.
        options: dict[str, Any] = {"max_retries": 0, "follow_redirects": False, "headers": self._headers}
        if timeout is not None:
            options["timeout"] = timeout
        if self._vendor.name == "openai":
            options["security"] = {"bearer_auth": True}
        arguments: dict[str, Any] = {"cast_to": httpx2.Response, "stream": True, "options": options}
        if method == "POST":
            arguments["content"] = content
        try:
            return await getattr(self._client, method.lower())(path, **arguments)
        except Exception as problem:
            response = getattr(problem, "response", None)
            if hasattr(response, "status_code"):
                return response
            error = self._convert_error(problem)
        # Raised outside the handler: the SDK's own error must not be its context, because it may quote a secret.
        raise error

    def _convert_error(self, problem: Exception) -> Exception:
        """Return the HTTP error inside an SDK's error, or `AuthFailed` if there is none."""
        import httpx2

        for each in (problem, problem.__cause__):
            if isinstance(each, httpx2.LocalProtocolError):
                # Its message quotes the header, which contains the key.
                return AuthFailed(
                    f"The client of {self._label} did not send the request: its key contains invalid "
                    f"characters. Check that you copied the whole key and nothing else."
                )
            if isinstance(each, httpx2.HTTPError | httpx2.InvalidURL):
                return each
        if any(each.__name__ == "APIConnectionError" for each in type(problem).__mro__):
            return httpx2.ConnectError(str(problem.__cause__ or problem))
        # A Unicode error quotes the whole header, which contains the key.
        secret = isinstance(problem, UnicodeError)
        text = "" if secret else str(problem).strip('."')
        cause = f"{type(problem).__name__}: {text}" if text else type(problem).__name__
        return AuthFailed(f"The client of {self._label} did not send the request ({cause}). Check its credentials.")


class AsyncSDKResponse:
    """A context manager that sends a request on entry and closes the response on exit."""

    def __init__(self, sdk: AsyncSDK, method: str, path: str, content: bytes | None, timeout: Any) -> None:
        self._sdk = sdk
        self._request = (method, path, content, timeout)

    async def __aenter__(self) -> Any:
        self._response = await self._sdk.request(*self._request)
        return self._response

    async def __aexit__(self, *_: object) -> None:
        await self._response.aclose()


def resolve_by_sdk(model: str, client: Any, vendor: Vendor) -> tuple[ResolvedModel, AsyncSDK]:
    """Return the resolved model and the adapter for an SDK client.

    Raise `InputError` if the client can't be used for this model.
    """
    check_client(client, vendor, is_async=ASYNC)
    # The client sends its own key. Here, it only identifies the account.
    resolved = resolve(model, base_url=read_address(client), api_key=identify_account(client))
    if resolved.wire.name not in WIRES[vendor.name]:
        raise InputError(
            f"{type(client).__name__} is a client for {vendor.name} and can't be used for {model!r}: "
            "pass a client for its provider."
        )
    resolved = msgspec.structs.replace(resolved, base_url=read_address(client))
    return resolved, AsyncSDK(client, vendor, resolved)

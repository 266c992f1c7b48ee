"""A client of a vendor's own SDK as the way to its server: its address, credentials, signing, proxies, time limits.

It stands where an HTTP client stands, and carries bytes: the SDK composes and reads nothing, and tries nothing again.
What goes wrong in it comes out as an error of HTTP, or as `AuthFailed`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from longtalk._io import ASYNC
from longtalk.errors import AuthFailed, InputError
from longtalk.providers.clouds import REWRITTEN, WIRES, Vendor, address, check, identity, placed
from longtalk.providers.registry import Resolved, resolve


class AsyncSDK:
    """An SDK's client, used as an HTTP client is."""

    is_sdk = True

    def __init__(self, client: Any, vendor: Vendor, resolved: Resolved) -> None:
        self._client = client
        self._vendor = vendor
        self._model = resolved.model
        self._label = resolved.label
        self._base_url = resolved.base_url
        # Our wire speaks the version that it names, whichever one the SDK is made for.
        self._headers = {} if vendor.cloud in REWRITTEN else resolved.wire.headers(None)

    @property
    def is_closed(self) -> bool:
        return bool(self._client.is_closed())

    def stream(self, method: str, url: str, *, content: bytes | None, headers: Any) -> AsyncAsked:  # noqa: ARG002
        """A request. Its headers are the client's own, but for those that say how the wire is to be read."""
        return AsyncAsked(self, method, url.removeprefix(self._base_url), content)

    async def ask(self, method: str, path: str, content: bytes | None) -> Any:
        """The answer, unread, whatever its status is."""
        import httpx2

        path, content = placed(self._client, self._vendor, self._model, path, content)
        # Whether to try again is the turn's to say; who follows to another address takes the key along.
        options: dict[str, Any] = {"max_retries": 0, "follow_redirects": False, "headers": self._headers}
        if self._vendor.name == "openai":
            options["security"] = {"bearer_auth": True}
        request: dict[str, Any] = {"cast_to": httpx2.Response, "stream": True, "options": options}
        if method == "POST":
            request["content"] = content
        try:
            return await getattr(self._client, method.lower())(path, **request)
        except Exception as problem:
            answer = getattr(problem, "response", None)
            if hasattr(answer, "status_code"):
                return answer
            trouble = self._trouble(problem)
        # Not from the SDK's own error: that may come from this one, or quote a secret.
        raise trouble

    def _trouble(self, problem: Exception) -> Exception:
        """What went wrong on the way, without what the SDK has put around it."""
        import httpx2

        for each in (problem, problem.__cause__):
            if isinstance(each, httpx2.LocalProtocolError):
                # It quotes the header that can't be sent.
                return AuthFailed(
                    f"The client of {self._label} did not send the request: its key has characters that no key has. "
                    f"Check that it was copied whole and alone."
                )
            if isinstance(each, httpx2.HTTPError | httpx2.InvalidURL):
                return each
        if any(each.__name__ == "APIConnectionError" for each in type(problem).__mro__):
            return httpx2.ConnectError(str(problem.__cause__ or problem))
        # Characters that no header takes are shown with all that stands around them.
        secret = isinstance(problem, UnicodeError)
        why = "" if secret else str(problem).strip('."')
        why = f"{type(problem).__name__}: {why}" if why else type(problem).__name__
        return AuthFailed(f"The client of {self._label} did not send the request ({why}). Check its credentials.")


class AsyncAsked:
    """An answer that is let go of at the end."""

    def __init__(self, sdk: AsyncSDK, method: str, path: str, content: bytes | None) -> None:
        self._sdk = sdk
        self._request = (method, path, content)

    async def __aenter__(self) -> Any:
        self._answer = await self._sdk.ask(*self._request)
        return self._answer

    async def __aexit__(self, *_: object) -> None:
        await self._answer.aclose()


def by_sdk(model: str, client: Any, vendor: Vendor) -> tuple[Resolved, AsyncSDK]:
    """A model as the client of an SDK reaches it."""
    check(client, vendor, is_async=ASYNC)
    # What tells its account apart stands for the key, which is the client's own business.
    resolved = resolve(model, base_url=address(client), api_key=identity(client))
    if resolved.wire.name not in WIRES[vendor.name]:
        raise InputError(f"{type(client).__name__} is a client of {vendor.name}, and can't reach {model!r}.")
    resolved = msgspec.structs.replace(resolved, base_url=address(client))
    return resolved, AsyncSDK(client, vendor, resolved)

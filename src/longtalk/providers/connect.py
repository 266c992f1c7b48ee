"""From a model's name to a provider that can be asked."""

from __future__ import annotations

from typing import Any

from longtalk.errors import InputError
from longtalk.providers.base import AsyncProvider
from longtalk.providers.http import AsyncHTTP
from longtalk.providers.local import AsyncLocal
from longtalk.providers.registry import Resolved, resolve
from longtalk.providers.responses import AsyncResponses
from longtalk.wires import AGENTS


def connect(
    model: str | AsyncProvider,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    client: Any = None,
) -> AsyncProvider:
    """The provider that a chat speaks to: looked up by name, or the one that was handed in."""
    given = [name for name, value in (("base_url", base_url), ("api_key", api_key), ("client", client)) if value]
    if given and (not isinstance(model, str) or model.partition(":")[0] == "local"):
        raise InputError(f"`{given[0]}` is for models behind an address, and {model!r} has none: leave it out.")
    if not isinstance(model, str):
        if not hasattr(model, "wire") or not hasattr(model, "stream"):
            raise InputError(
                f"A model is a name such as 'local' or 'openai-chat:MODEL', or a provider, not {type(model).__name__}."
            )
        if not hasattr(model, "aclose"):
            raise InputError(f"{type(model).__name__} is for the other kind of chat: Chat and AsyncChat don't mix.")
        return model
    resolved, client = _looked_up(model, base_url, api_key, client)
    if resolved.provider in AGENTS:
        if client is not None:
            raise InputError(f"`client` is for models behind an address, and {model!r} is a program: leave it out.")
        from longtalk.providers.program import AsyncProgram

        return AsyncProgram(resolved)
    if resolved.provider == "local":
        return AsyncLocal(resolved)
    if resolved.provider == "litellm":
        if client is not None:
            raise InputError(f"`client` is not for {model!r}: LiteLLM has clients of its own. Leave it out.")
        from longtalk.providers.litellm import AsyncLiteLLM

        return AsyncLiteLLM(resolved)
    if resolved.wire.name == "openai-responses":
        return AsyncResponses(resolved, client=client)
    return AsyncHTTP(resolved, client=client)


def _looked_up(model: str, base_url: str | None, api_key: str | None, client: Any) -> tuple[Resolved, Any]:
    """A model by its name, and what carries its requests; None if nothing was handed in."""
    if client is None:
        return resolve(model, base_url=base_url, api_key=api_key), None
    if isinstance(client, type):
        raise InputError(
            f"`client` is an object, and {client.__name__} is a class: make one with {client.__name__}(…)."
        )
    from longtalk.providers.clouds import vendor_of

    vendor = vendor_of(client)
    if vendor is not None:
        for name, value in (("base_url", base_url), ("api_key", api_key)):
            if value:
                raise InputError(f"The client has an address and credentials of its own: leave `{name}` out.")
        from longtalk.providers.sdk import by_sdk

        return by_sdk(model, client, vendor)
    if not hasattr(client, "aclose") or not hasattr(client, "stream"):
        raise InputError(
            f"`client` is an httpx2.AsyncClient here, or one of a vendor's SDK, not {type(client).__name__}."
        )
    return resolve(model, base_url=base_url, api_key=api_key), client

"""From a model's name to a provider that can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longtalk.errors import InputError
from longtalk.providers.base import AsyncProvider
from longtalk.providers.http import AsyncHTTP
from longtalk.providers.local import AsyncLocal
from longtalk.providers.registry import resolve
from longtalk.providers.responses import AsyncResponses
from longtalk.wires import AGENTS

if TYPE_CHECKING:
    import httpx2


def connect(
    model: str | AsyncProvider,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    client: httpx2.AsyncClient | None = None,
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
    if client is not None and not hasattr(client, "aclose"):
        raise InputError(f"`client` is an httpx2.AsyncClient here, not {type(client).__name__}.")
    resolved = resolve(model, base_url=base_url, api_key=api_key)
    if resolved.provider in AGENTS:
        if client is not None:
            raise InputError(f"`client` is for models behind an address, and {model!r} is a program: leave it out.")
        from longtalk.providers.program import AsyncProgram

        return AsyncProgram(resolved)
    if resolved.provider == "local":
        return AsyncLocal(resolved)
    if resolved.wire.name == "openai-responses":
        return AsyncResponses(resolved, client=client)
    return AsyncHTTP(resolved, client=client)

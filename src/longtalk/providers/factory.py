"""Create the provider for a model name, or check the provider object that the caller passed."""

from __future__ import annotations

from typing import Any

from longtalk._util.concurrency import ASYNC
from longtalk.errors import InputError
from longtalk.providers.base import AsyncProvider
from longtalk.providers.http.provider import AsyncHTTP
from longtalk.providers.http.responses import AsyncResponses
from longtalk.providers.local.provider import AsyncLocal
from longtalk.providers.registry import ResolvedModel, find_maker, resolve
from longtalk.wires import AGENTS

_LONGEST_TIMEOUT = 10**6


def connect(
    model: str | AsyncProvider,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    client: Any = None,
    timeout: float | None = None,
) -> AsyncProvider:
    """Return the provider for a model name, or `model` itself if it is already a provider.

    Raise `InputError` if the name is unknown or an argument can't be used with the model.
    """
    passed = [name for name, value in (("base_url", base_url), ("api_key", api_key), ("client", client)) if value]
    if passed and (not isinstance(model, str) or model.partition(":")[0] == "local"):
        raise InputError(f"`{passed[0]}` is for models at a network address, and {model!r} has none: leave it out.")
    if timeout is not None:
        if not isinstance(model, str):
            raise InputError(
                f"`timeout` is for models by name, and a {type(model).__name__} has its own limits: leave it out."
            )
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < _LONGEST_TIMEOUT:
            raise InputError(f"`timeout` must be a positive number of seconds below 1,000,000, not {timeout!r}.")
    if not isinstance(model, str):
        if not hasattr(model, "wire") or not hasattr(model, "stream"):
            raise InputError(
                f"`model` must be a name such as 'local' or 'openai-chat:MODEL', or a provider, "
                f"not {type(model).__name__}."
            )
        if not hasattr(model, "aclose"):
            raise InputError(
                f"{type(model).__name__} does not fit this chat: Chat takes sync providers, AsyncChat async ones."
            )
        return model
    make = find_maker(model)
    if make is not None:
        name = model.partition(":")[2]
        made = make(name, base_url=base_url, api_key=api_key, client=client, is_async=ASYNC)
        if isinstance(made, str):
            raise InputError(f"The package that offers {model!r} must return a provider, not the text {made!r}.")
        return connect(made)
    resolved, client = _resolve_with_client(model, base_url, api_key, client)
    if resolved.provider in AGENTS:
        if client is not None:
            raise InputError(f"`client` is for models at a network address, and {model!r} is a program: leave it out.")
        from longtalk.providers.agents.provider import AsyncAgentProgram

        return AsyncAgentProgram(resolved, timeout=timeout)
    if resolved.provider == "local":
        return AsyncLocal(resolved, timeout=timeout)
    if resolved.provider == "litellm":
        if client is not None:
            raise InputError(f"`client` can't be used with {model!r}: LiteLLM has its own clients. Leave it out.")
        from longtalk.providers.litellm.provider import AsyncLiteLLM

        return AsyncLiteLLM(resolved, timeout=timeout)
    kind = AsyncResponses if resolved.wire.name == "openai-responses" else AsyncHTTP
    provider = kind(resolved, client=client, timeout=timeout)
    provider.own_address = bool(passed) and passed != ["api_key"]
    return provider


def _resolve_with_client(
    model: str, base_url: str | None, api_key: str | None, client: Any
) -> tuple[ResolvedModel, Any]:
    """Return the resolved model and the client that sends its requests (None if the caller passed no client)."""
    if client is None:
        return resolve(model, base_url=base_url, api_key=api_key), None
    if isinstance(client, type):
        raise InputError(f"`client` must be an instance, not the class {client.__name__}: pass {client.__name__}(…).")
    from longtalk.providers.sdk.clouds import find_vendor

    vendor = find_vendor(client)
    if vendor is not None:
        for name, value in (("base_url", base_url), ("api_key", api_key)):
            if value:
                raise InputError(f"The client has its own address and credentials: leave `{name}` out.")
        from longtalk.providers.sdk.provider import resolve_by_sdk

        return resolve_by_sdk(model, client, vendor)
    if not hasattr(client, "aclose") or not hasattr(client, "stream"):
        raise InputError(
            f"`client` must be an httpx2.AsyncClient or a client of a vendor's SDK, not {type(client).__name__}."
        )
    return resolve(model, base_url=base_url, api_key=api_key), client

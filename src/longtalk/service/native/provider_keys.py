"""API keys of providers, which the user of this machine can store. No answer, log or error has a key."""

from __future__ import annotations

import os
from typing import Annotated, Any

import msgspec

from longtalk._util.concurrency import call_store, run_in_thread
from longtalk.errors import InputError
from longtalk.models import registry
from longtalk.providers.registry import PROVIDERS
from longtalk.service.access import is_loopback
from longtalk.service.errors import ApiError
from longtalk.service.native.routes import ApiCall, Nothing, Route
from longtalk.service.settings import check_credential, load_credentials, store_credential

_PROXIED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Headers of requests that come through a proxy, behind which anyone may be."""


class ProviderKey(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there is an API key for a provider, and where it comes from."""

    provider: str
    is_stored: bool
    """Whether a key is stored in the user's `credentials.toml`."""
    variable: str | None
    """The environment variable of the service that has a key, which counts if none is stored; null if none has."""
    models: list[str]
    """The known models that can be named with this key, as `provider:model`; empty without a key."""


class ProviderKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The providers that take an API key."""

    providers: list[ProviderKey]


class StoreKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The API key to store. Spaces around it don't count."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=4000)]


async def list_provider_keys(call: ApiCall[Nothing, Nothing]) -> ProviderKeys:
    """List the providers that take an API key, and whether they have one."""
    await _check_single_user(call)
    return await _list(call)


async def store_key(call: ApiCall[Nothing, StoreKey]) -> ProviderKeys:
    """Store the API key of a provider, in place of the one that is stored. It is never shown again."""
    await _check_single_user(call)
    key = call.body.key.strip()
    if not key:
        raise ApiError(400, "The API key is empty.", param="key", code="invalid_value")
    await _store(call.path["provider"], key)
    return await _list(call)


async def remove_key(call: ApiCall[Nothing, Nothing]) -> ProviderKeys:
    """Remove the stored API key of a provider. A key in the environment stays."""
    await _check_single_user(call)
    await _store(call.path["provider"], "")
    return await _list(call)


async def _check_single_user(call: ApiCall[Any, Any]) -> None:
    service = call.service
    request = call.request
    if request.client is None or not is_loopback(request.client.host) or any(h in request.headers for h in _PROXIED):
        message = "API keys of providers can be read and changed only from the service's own machine, without a proxy."
        raise ApiError(403, message, code="single_user_only")
    if not await call_store(service.storage, service.gate.is_single_user):
        message = (
            "This service has access keys, so API keys of providers can't be read or changed here. "
            "Its operator can store one: longtalk config set-key PROVIDER."
        )
        raise ApiError(403, message, code="single_user_only")


async def _store(provider: str, key: str) -> None:
    try:
        check_credential(provider, key)
    except InputError as problem:
        raise ApiError(400, str(problem), code="invalid_value") from None
    try:
        await run_in_thread(lambda: store_credential(provider, key))
    except (InputError, OSError) as problem:
        why = f"{problem.strerror}." if isinstance(problem, OSError) else str(problem)
        message = f"The file with the API keys can't be changed: {why}"
        raise ApiError(500, message, kind="server_error", code="settings_not_writable") from None


async def _list(call: ApiCall[Any, Any]) -> ProviderKeys:
    offers_any = call.service.settings.any_model
    found: ProviderKeys = await run_in_thread(lambda: ProviderKeys(providers=_describe(offers_any)))
    return found


def _describe(offers_any: bool) -> list[ProviderKey]:
    stored = load_credentials()
    found: list[ProviderKey] = []
    for name, address in PROVIDERS.items():
        if address.key_variable is None and name not in stored:
            continue
        variables = (address.key_variable, address.other_key_variable)
        variable = next((each for each in variables if each and os.environ.get(each)), None)
        is_offered = offers_any and name in registry.providers() and (name in stored or variable)
        models = [each.label for each in registry.models(provider=name)] if is_offered else []
        found.append(ProviderKey(provider=name, is_stored=name in stored, variable=variable, models=models))
    return found


_ONE = "/provider-keys/{provider}"
ROUTES: tuple[Route[Any, Any], ...] = (
    Route("GET", "/provider-keys", list_provider_keys, answer=ProviderKeys, errors=(403,)),
    Route("PUT", _ONE, store_key, body=StoreKey, answer=ProviderKeys, errors=(403, 500)),
    Route("DELETE", _ONE, remove_key, answer=ProviderKeys, errors=(403, 500)),
)

"""The caller: who they are, what they may use, and their access keys."""

from __future__ import annotations

from typing import Any

import msgspec

import longtalk
from longtalk._util.concurrency import call_store, run_in_thread
from longtalk.errors import InputError
from longtalk.models import registry
from longtalk.models.call_cost import Prices
from longtalk.policies.notation import format_policy
from longtalk.providers.registry import list_known
from longtalk.service.access import AccessKey
from longtalk.service.errors import ApiError, not_found, quote
from longtalk.service.native.routes import ApiCall, Nothing, Route


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """That the service is there, and whom it takes the caller for."""

    status: str
    version: str
    owner: str
    """Empty for the user of this machine."""
    key: str | None
    """The id of the access key; null without one."""
    default_model: str
    is_single_user: bool
    """Whether the service is for the user of this machine alone, without access keys."""


class KeyObject(msgspec.Struct, frozen=True, kw_only=True):
    """An access key, without its secret."""

    id: str
    name: str
    created: int
    expires: int | None
    models: list[str]
    routes: list[str]
    is_current: bool
    """Whether this request came with it."""


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """The access keys of the caller's owner."""

    keys: list[KeyObject]


class ModelObject(msgspec.Struct, frozen=True, kw_only=True):
    """A model that the caller can name."""

    name: str
    label: str
    """The model behind the name, as `provider:model`; empty if it is not set up."""
    policy: str
    window: int | None
    prices: Prices | None
    """US dollars per million tokens; null if unknown."""


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The models that the caller can name."""

    models: list[ModelObject]
    any_model: bool
    """Whether any other `provider:model` can be named too."""


class KnownModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that conversations can be simulated with, whether or not the caller can name it."""

    label: str
    """As `provider:model`."""
    input: float
    """US dollars per million tokens."""
    output: float
    """US dollars per million tokens."""


class KnownModels(msgspec.Struct, frozen=True, kw_only=True):
    """The models of known prices, vendors first."""

    models: list[KnownModel]


async def report_health(call: ApiCall[Nothing, Nothing]) -> Health:
    """Report that the service is there, and whom it takes the caller for."""
    service, caller = call.service, call.caller
    return Health(
        status="ok",
        version=longtalk.__version__,
        owner=caller.owner,
        key=caller.key or None,
        default_model=service.settings.default_model,
        is_single_user=await call_store(service.storage, service.gate.is_single_user),
    )


async def list_models(call: ApiCall[Nothing, Nothing]) -> ModelList:
    """List the models with their policies, windows and prices."""
    service, caller = call.service, call.caller
    names = [name for name in service.models.names if not caller.models or name in caller.models]
    allows_any = service.settings.any_model and not caller.models
    return ModelList(models=[_to_model(call, name) for name in names], any_model=allows_any)


async def list_known_models(_: ApiCall[Nothing, Nothing]) -> KnownModels:
    """List the models of known prices, vendors first."""
    found = await run_in_thread(list_known)
    priced = [(each.label, each.prices) for each in found if each.prices is not None]
    return KnownModels(
        models=[KnownModel(label=label, input=prices.input, output=prices.output) for label, prices in priced]
    )


async def list_keys(call: ApiCall[Nothing, Nothing]) -> Keys:
    """List the access keys of the caller's owner."""
    return Keys(keys=[_to_key(key, call.caller.key) for key in await _read_keys(call)])


async def revoke_key(call: ApiCall[Nothing, Nothing]) -> Keys:
    """Revoke an access key of the caller's owner. It can't be used again."""
    name, keys = call.path["key"], call.service.keys
    if all(key.id != name for key in await _read_keys(call)):
        raise not_found(f"Key {quote(name)}")
    await call_store(call.service.storage, lambda: keys.revoke(name))
    return await list_keys(call)


async def _read_keys(call: ApiCall[Any, Any]) -> list[AccessKey]:
    owner, keys = call.caller.owner, call.service.keys
    found: list[AccessKey] = await call_store(call.service.storage, keys.list)
    # A key of an app that acts for many owners is not one of theirs.
    return [key for key in found if key.owner == owner and (not key.act_as or key.id == call.caller.key)]


def _to_key(key: AccessKey, current: str) -> KeyObject:
    return KeyObject(
        id=key.id,
        name=key.name,
        created=key.created,
        expires=key.expires,
        models=list(key.models),
        routes=list(key.routes),
        is_current=key.id == current,
    )


def _to_model(call: ApiCall[Any, Any], name: str) -> ModelObject:
    try:
        served = call.service.models.find(name, allowed=call.caller.models)
    except (ApiError, InputError):
        return ModelObject(name=name, label="", policy="", window=None, prices=None)
    known = registry.find(served.provider.label)
    return ModelObject(
        name=name,
        label=served.provider.label,
        policy=format_policy(served.policy),
        window=call.service.models.find_window(served.provider.label),
        prices=known.prices if known else None,
    )


ROUTES: tuple[Route[Any, Any], ...] = (
    Route("GET", "/health", report_health, answer=Health),
    Route("GET", "/models", list_models, answer=ModelList),
    Route("GET", "/known-models", list_known_models, answer=KnownModels),
    Route("GET", "/keys", list_keys, answer=Keys),
    Route("DELETE", "/keys/{key}", revoke_key, answer=Keys),
)

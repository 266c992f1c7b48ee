"""The models that clients can name, and the providers behind them.

A provider keeps its connections, so there is one for each model in a process, however many conversations use it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from longtalk.errors import InputError
from longtalk.memory.profile.config import Profile, merge_profiles
from longtalk.models import registry
from longtalk.policies import Policy
from longtalk.policies.base import get_profile, read_rules
from longtalk.policies.notation import parse_policy
from longtalk.providers.base import AsyncProvider
from longtalk.providers.factory import connect
from longtalk.providers.local.catalog import find_model
from longtalk.providers.registry import MissingKey
from longtalk.service.errors import ApiError, quote, shorten
from longtalk.service.memory_settings import read_memory
from longtalk.service.settings import ModelSettings, Settings
from longtalk.wires import AGENTS

_log = logging.getLogger("longtalk")
_NO_KEY = "none"
"""In place of an API key, for a provider to which nothing is sent."""


class ServedModel(msgspec.Struct, frozen=True):
    """A model with its connected provider."""

    name: str
    """The name that the client used."""
    provider: AsyncProvider
    policy: Policy
    options: Mapping[str, Any]
    system: str
    lacks_key: str = ""
    """The name of the provider if it has no API key, so that it can compose requests but not send them; else empty."""


class _Credentials(Protocol):
    """The API keys of providers."""

    def get(self, provider: str, /) -> str | None: ...


class Models:
    """The models of the settings, and any other where the settings allow it.

    `providers` are objects that answer under a name, for programs that mount the service and for tests.
    """

    def __init__(
        self, settings: Settings, credentials: _Credentials, providers: Mapping[str, AsyncProvider] | None = None
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._given = dict(providers or {})
        self._default_policy = parse_policy(settings.policy)
        policies = {name: _make_policy(name, each) for name, each in settings.models.items()}
        self._policies = {name: policy for name, policy in policies.items() if policy is not None}
        self._connected: dict[tuple[str, str | None, str | None], AsyncProvider] = {}

    @property
    def names(self) -> list[str]:
        """The names that the settings define, and the default model."""
        return list(dict.fromkeys([*self._given, *self._settings.models, self._settings.default_model]))

    @property
    def profile(self) -> Profile | None:
        """The profile that the policies of these models keep, with the fields of all; None if none keeps one."""
        policies = [self._policies.get(name, self._default_policy) for name in self.names]
        kept = [get_profile(read_rules(policy).keeper) for policy in policies]
        return merge_profiles([each for each in kept if each is not None])

    def find(self, name: str | None, *, allowed: tuple[str, ...] = (), sends: bool = True) -> ServedModel:
        """Return the model of a name; without a name, the default one.

        `allowed` are the names that the caller's key is limited to. Raises the same `ApiError` for an unknown model
        and for one that this caller may not use. A model whose provider has no API key is only returned if nothing is
        sent to it, which `sends` says.
        """
        chosen = name or self._settings.default_model
        known = chosen in self._given or chosen in self._settings.models or chosen == self._settings.default_model
        if (allowed and chosen not in allowed) or not (known or (self._settings.any_model and _is_remote(chosen))):
            raise _unknown(chosen)
        settings = self._settings.models.get(chosen, ModelSettings(chosen))
        lacks_key = ""
        try:
            try:
                provider = self._connect(chosen, settings)
            except MissingKey:
                lacks_key = settings.model.partition(":")[0]
                if sends:
                    raise _lacks_key(chosen, lacks_key) from None
                provider = self._connect(chosen, settings, api_key=_NO_KEY)
        except InputError as problem:
            if known:
                raise ApiError(500, str(problem), kind="server_error", code="model_unavailable") from None
            _log.warning("the model %s can't be used: %s", quote(chosen), shorten(str(problem)))
            raise _unknown(chosen) from None
        policy = self._policies.get(chosen, self._default_policy)
        return ServedModel(chosen, provider, policy, settings.options, settings.system, lacks_key)

    def find_window(self, label: str) -> int | None:
        """Return the window of a model, given as `provider:model`, as its provider here or the registry knows it."""
        for name in self.names:
            with contextlib.suppress(ApiError):
                self.find(name)  # connects it
        for provider in (*self._given.values(), *self._connected.values()):
            if provider.label == label and provider.capabilities.window:
                return provider.capabilities.window
        known = registry.find(label)
        return known.window if known else None

    async def aclose(self) -> None:
        """Close the connections of all providers."""
        for provider in [*self._connected.values(), *self._given.values()]:
            await provider.aclose()

    def _connect(self, name: str, settings: ModelSettings, *, api_key: str | None = None) -> AsyncProvider:
        if name in self._given:
            return self._given[name]
        api_key = api_key or self._credentials.get(settings.model.partition(":")[0])
        # With another key, a provider is connected again. Turns may still run on the connections of the old one.
        key = (settings.model, settings.base_url, api_key)
        if key not in self._connected:
            self._connected[key] = connect(settings.model, base_url=settings.base_url, api_key=api_key)
        return self._connected[key]


def _make_policy(name: str, settings: ModelSettings) -> Policy | None:
    """Return the policy that the settings give a model, or None if it has none of its own."""
    if settings.memory and settings.policy:
        raise InputError(f"The model {name!r} has both `policy` and `memory` in the settings: remove one of them.")
    if settings.memory:
        return read_memory(settings.memory, f"models.{name}.memory")
    return parse_policy(settings.policy) if settings.policy else None


def _is_remote(name: str) -> bool:
    """Return False for a model that only the settings may name: a file or a program of this machine."""
    provider, _, model = name.partition(":")
    return provider not in AGENTS and (provider != "local" or find_model(model) is not None)


def _lacks_key(name: str, provider: str) -> ApiError:
    message = (
        f"The server has no API key for the provider {quote(provider)}, which the model {quote(name)} needs. "
        f"Store one with `longtalk config set-key {provider}`, or under Provider keys on the page of a service without "
        "access keys."
    )
    return ApiError(503, message, kind="server_error", param="model", code="provider_key_missing")


def _unknown(name: str) -> ApiError:
    return ApiError(
        404, f"The model {quote(name)} does not exist or is not for you.", param="model", code="model_not_found"
    )

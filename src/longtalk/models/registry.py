"""Facts about models: window, limits, capabilities and prices.

The facts have three sources, each of which overrides the previous one field by field: a data file in this package,
which `tools/registry.py` builds; the user's `models.json` in the config folder, or the file that the environment
variable `LONGTALK_MODELS` names; and calls to `register`.

A model is found by its full name, never by a prefix. The lookup tries, in this order:

1. the name or one of its aliases, ignoring case;
2. the name without a date at its end (`-20260101`, `@20260101`, `-2026-01-01`) or without `-latest`;
3. for a fine-tuned model (`ft:BASE:…`), `ft:BASE`, and then `BASE`, without its prices;
4. on OpenRouter, for `NAME:VARIANT`, `NAME`, without its prices, because a variant is served by another provider.

For a model that is not found, the window and the prices are unknown.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from longtalk._util import user_dirs
from longtalk.errors import InputError
from longtalk.models.call_cost import Prices, Rates, Tier

__all__ = ["Model", "Prices", "Provider", "Rates", "Tier", "find", "models", "providers", "register"]

DATA_PATH = os.path.join(os.path.dirname(__file__), "data", "prices_and_limits.json.gz")
_MAX_BYTES = 5_000_000
_PROVIDERS_WITHOUT_MODELS = (
    *("local", "ollama", "vllm", "llamacpp", "lmstudio", "compatible", "litellm"),
    *("claude-cli", "codex-cli", "gemini-cli"),
)
"""Providers without models in the data file: servers that run models of the user's choice, and command-line tools."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Caching: TypeAlias = Literal["none", "automatic", "marks"]
"""How a provider caches the beginning of requests: not at all, automatically, or up to marks in the request."""


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The known facts about a model. None means unknown."""

    provider: str
    name: str
    aliases: tuple[str, ...] = ()
    """Other names of the model."""
    window: Count | None = None
    """The maximum number of tokens in a request and its answer together."""
    input_limit: Count | None = None
    """The maximum number of tokens in a request, if that is less than the window."""
    output_limit: Count | None = None
    """The maximum number of tokens in an answer."""
    tools: bool | None = None
    streaming: bool | None = None
    structured_output: bool | None = None
    cache: Caching | None = None
    cache_seconds: Count | None = None
    """How many seconds a cached prefix is kept after its last use."""
    binds_thinking: bool | None = None
    """Whether the model's thinking blocks are valid only for the model and account that made them."""
    keeps_state: bool | None = None
    """Whether the provider can store the conversation itself."""
    prices: Prices | None = None

    @property
    def label(self) -> str:
        """The full name of the model, as `provider:model`."""
        return _make_label(self.provider, self.name)


class Provider(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts about a provider from the data file. The providers a chat can use are in `longtalk.providers.registry`."""

    wire: str
    base_url: str | None = None
    base_url_variable: str | None = None
    key_variable: str | None = None
    keeps_state: bool = False
    binds_thinking: bool | None = None
    """False if this provider returns thinking as plain text for every model."""
    cache_seconds: Count | None = None
    """How many seconds a cached prefix is kept, for models without a value of their own."""
    models_of: str = ""
    """The name of the provider whose list of models this one shares; empty if it has its own."""


class _ProviderModels(Provider, frozen=True, kw_only=True):
    """A provider in the package's data file with its models. Each model is decoded when it is looked up."""

    models: dict[str, msgspec.Raw] = {}
    aliases: dict[str, str] = {}


class _Source(msgspec.Struct, frozen=True):
    """A package from which the data file takes facts."""

    package: str
    version: str
    licence: str


class _DataFile(msgspec.Struct, frozen=True):
    """The package's data file. Each provider is decoded when it is first needed."""

    format: Literal[1]
    built: str
    sources: list[_Source]
    providers: dict[str, msgspec.Raw]


_registered: dict[str, Model] = {}


def find(label: str) -> Model | None:
    """Return the known facts about a model, given as `provider:model`; None if the model is unknown."""
    return _find_model(label, {**_read_overrides(), **_registered})


def register(model: Model | Mapping[str, Any]) -> Model:
    """Register a model in this process, and return it.

    A `Model` replaces all known facts about the model with this name. A mapping overrides them field by field:

        register({"provider": "openrouter", "name": "acme/talker-2", "window": 64_000})
    """
    source = "The registered model"
    if isinstance(model, Model):
        registered = _make_model(msgspec.to_builtins(model), source)
    elif isinstance(model, Mapping):
        provider, name = model.get("provider"), model.get("name", "")
        if not isinstance(provider, str) or not isinstance(name, str):
            raise InputError("A registered model needs a `provider` and a `name`, both strings.")
        registered = _make_override(provider, name, model, {**_read_overrides(), **_registered}, source)
    else:
        raise InputError(f"`register` takes a Model or a mapping of its fields, not {type(model).__name__}.")
    _registered[registered.label] = registered
    return registered


def is_overridden(model: Model) -> bool:
    """Return True if this model comes from the user's file or from `register`, not from the package's data file."""
    return any(model is known for known in (*_read_overrides().values(), *_registered.values()))


def models(query: str = "", *, provider: str | None = None) -> Iterator[Model]:
    """Yield the models whose label and aliases contain all words of the query, sorted by provider and name.

    With `provider`, only the models of this provider are searched.
    """
    if provider is not None:
        _check_provider(provider, "`provider`")
    overrides = {**_read_overrides(), **_registered}
    words = query.lower().split()
    for provider_name in sorted(providers()) if provider is None else [provider]:
        entry = _load_provider(provider_name)
        names = {*entry.models, *(model.name for model in overrides.values() if model.provider == provider_name)}
        for name in sorted(names, key=lambda name: (name.lower(), name)):
            model = _look_up(provider_name, name, overrides)
            if model is not None:
                searchable = " ".join((model.label, *model.aliases)).lower()
                if all(word in searchable for word in words):
                    yield model


def providers() -> dict[str, Provider]:
    """Return the providers in the package's data file, by name."""
    return {name: msgspec.json.decode(raw, type=Provider) for name, raw in _load_data().providers.items()}


# Names

_DATE = r"20[2-9]\d(?:(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])|-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))"
_UNDATED = re.compile(rf"(.+?)(?:[-@]{_DATE}|-latest)", re.IGNORECASE)
_FINE_TUNED = re.compile(r"(ft:)([^:]+)(?::.*)?", re.IGNORECASE | re.DOTALL)


def _list_candidate_names(provider: str, name: str) -> Iterator[tuple[str, bool]]:
    """Yield the names under which a model may be listed, each with True if the prices listed there apply to it."""
    yield from ((candidate, True) for candidate in _list_undated_names(name))
    fine_tuned = _FINE_TUNED.fullmatch(name)
    if fine_tuned:
        yield from ((fine_tuned[1] + candidate, True) for candidate in _list_undated_names(fine_tuned[2]))
        yield from ((candidate, False) for candidate in _list_undated_names(fine_tuned[2]))
    base, colon, _ = name.rpartition(":")
    if provider == "openrouter" and colon:
        yield from ((candidate, False) for candidate in _list_undated_names(base))


def _list_undated_names(name: str) -> list[str]:
    """Return the name and, if it ends with a date or `-latest`, the name without that ending."""
    match = _UNDATED.fullmatch(name)
    return [name, match[1]] if match else [name]


def _find_model(label: str, overrides: Mapping[str, Model]) -> Model | None:
    """Return the model with this label, looked up under each of its possible names; None if it is not found."""
    provider, _, name = label.partition(":")
    if provider not in _PROVIDERS_WITHOUT_MODELS and provider not in _load_data().providers:
        return None
    for candidate, priced in _list_candidate_names(provider, name):
        found = _look_up(provider, candidate, overrides)
        if found is not None:
            return found if priced else msgspec.structs.replace(found, prices=None)
    return None


def _look_up(provider: str, name: str, overrides: Mapping[str, Model]) -> Model | None:
    """Return the model with this name, or None if it is not listed.

    `overrides` has the models from the user's file and from `register`, which take precedence over the data file.
    """
    entry = _load_provider(provider)
    spelling = (
        name if name in entry.models or name in entry.aliases else _map_spellings(provider).get(name.lower(), name)
    )
    listed_name = entry.aliases.get(spelling, spelling)
    for wanted in (name, listed_name):
        if _make_label(provider, wanted) in overrides:
            return overrides[_make_label(provider, wanted)]
    for override in overrides.values():
        if override.provider == provider and name.lower() in map(str.lower, (override.name, *override.aliases)):
            return override
    raw = entry.models.get(listed_name)
    if raw is None:
        return None
    facts = {"keeps_state": entry.keeps_state, **msgspec.json.decode(raw)}
    if entry.binds_thinking is not None:
        facts["binds_thinking"] = entry.binds_thinking
    if facts.get("cache") != "none":
        facts.setdefault("cache_seconds", entry.cache_seconds)
    aliases = _group_aliases(provider).get(listed_name, ())
    return msgspec.convert({**facts, "provider": provider, "name": listed_name, "aliases": aliases}, Model)


def _make_label(provider: str, name: str) -> str:
    return f"{provider}:{name}" if name else provider


# The data file


@cache
def _load_data() -> _DataFile:
    import zlib

    with open(DATA_PATH, "rb") as file:
        return msgspec.json.decode(zlib.decompress(file.read(), 31), type=_DataFile)


@cache
def _load_provider(provider: str) -> _ProviderModels:
    """Return a provider and its models from the data file, which is not read for `_PROVIDERS_WITHOUT_MODELS`."""
    if provider in _PROVIDERS_WITHOUT_MODELS:
        return _ProviderModels(wire="")
    entry = msgspec.json.decode(_load_data().providers[provider], type=_ProviderModels)
    if not entry.models_of:
        return entry
    same = _load_provider(entry.models_of)
    return msgspec.structs.replace(entry, models=same.models, aliases=same.aliases)


@cache
def _map_spellings(provider: str) -> dict[str, str]:
    """Return a mapping from each name and alias of a provider's models, in lower case, to its usual spelling."""
    entry = _load_provider(provider)
    return {name.lower(): name for name in (*entry.aliases, *entry.models)}


@cache
def _group_aliases(provider: str) -> dict[str, tuple[str, ...]]:
    """Return the aliases of a provider's models, by the name of the model."""
    aliases: dict[str, tuple[str, ...]] = {}
    for alias, name in _load_provider(provider).aliases.items():
        aliases[name] = (*aliases.get(name, ()), alias)
    return aliases


# The user's file and registered models


def get_overrides_path() -> str:
    """Return the path of the user's file with facts about models. The file may not exist."""
    return os.environ.get("LONGTALK_MODELS", "").strip() or os.path.join(user_dirs.config(), "models.json")


def _read_overrides() -> Mapping[str, Model]:
    """Return the models in the user's file, by label. The file is read again whenever it has changed."""
    global _cached_overrides
    try:
        file_path = get_overrides_path()
    except InputError:
        # Without a home folder there can't be such a file.
        return {}
    try:
        status = os.stat(file_path)
    except (OSError, ValueError) as problem:
        if os.environ.get("LONGTALK_MODELS", "").strip():
            raise InputError(
                f"LONGTALK_MODELS names the file {file_path!a}, which can't be read: {problem}. Check its path, its "
                "permissions and its content."
            ) from None
        return {}
    state = (file_path, status.st_mtime_ns, status.st_size)
    if _cached_overrides[0] != state:
        _cached_overrides = (state, _parse_overrides(file_path, status))
    return _cached_overrides[1]


_cached_overrides: tuple[tuple[str, int, int], Mapping[str, Model]] = (("", 0, 0), {})
"""The file's path, modification time and size when it was last read, and the models in it."""


def _parse_overrides(file_path: str, status: os.stat_result) -> Mapping[str, Model]:
    source = f"The file {file_path!a}"
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{source} must be a regular JSON file that describes models, not a folder or a device.")
    if status.st_size > _MAX_BYTES:
        raise InputError(
            f"{source} has {status.st_size:,} bytes; the maximum is {_MAX_BYTES:,}. Remove models that you don't need."
        )
    try:
        with open(file_path, "rb") as file:
            content = msgspec.json.decode(file.read(_MAX_BYTES + 1))
    except OSError as problem:
        raise InputError(f"{source} can't be read: {problem.strerror or problem}.") from None
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{source} is not valid JSON: {problem}. Correct the file.") from None
    if not isinstance(content, dict):
        raise InputError(
            f"{source} must contain a JSON object that maps 'provider:model' to the facts about the model."
        )
    parsed: dict[str, Model] = {}
    for label, fields in content.items():
        if not isinstance(fields, dict):
            raise InputError(f"{source}: the facts about {label!a} must be an object, not {type(fields).__name__}.")
        provider, _, name = label.partition(":")
        parsed[label] = _make_override(provider, name, fields, {}, source)
    return parsed


def _make_override(
    provider: str, name: str, fields: Mapping[str, Any], overrides: Mapping[str, Model], source: str
) -> Model:
    """Return the known facts about a model, overridden by `fields`. Each price is overridden separately.

    `overrides` has the models that take precedence over the data file. `source` begins error messages.
    """
    known = _find_model(_make_label(provider, name), overrides)
    facts = msgspec.to_builtins(known) if known is not None else {}
    if known is not None and known.name != name:
        # The facts come from another model, whose aliases don't apply.
        facts.pop("aliases", None)
    prices, known_prices = fields.get("prices"), facts.get("prices")
    if isinstance(prices, Mapping) and isinstance(known_prices, dict):
        if not prices.keys().isdisjoint(Rates.__struct_fields__):
            # A new price also applies to long requests, unless the caller gives tiers.
            known_prices.pop("tiers", None)
        fields = {**fields, "prices": {**known_prices, **prices}}
    model = _make_model({**facts, "provider": provider, "name": name, **fields}, source)
    if (model.provider, model.name) != (provider, name):
        raise InputError(
            f"{source}: the facts about {_make_label(provider, name)!a} name another model, {model.label!a}: "
            "leave out `provider` and `name`."
        )
    return model


def _make_model(facts: Mapping[str, Any], source: str) -> Model:
    """Return a model with these facts. If they are invalid, raise an `InputError` that begins with `source`."""
    try:
        model = msgspec.convert(facts, Model)
    except (msgspec.ValidationError, RecursionError) as problem:
        label = f"{facts.get('provider')}:{facts.get('name')}"
        raise InputError(f"{source}: the facts about {label!a} are not valid: {problem}. Correct them.") from None
    _check_provider(model.provider, source)
    if not model.name and model.provider != "local":
        raise InputError(f"{source}: {model.provider!a} is a provider, not a model: use 'provider:model'.")
    return model


def _check_provider(provider: str, source: str) -> None:
    known = providers()
    if provider not in known:
        import difflib

        close = difflib.get_close_matches(provider, known, n=1, cutoff=0.5)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        raise InputError(f"{source}: unknown provider {provider!a}. {hint}Known providers: {', '.join(known)}.")

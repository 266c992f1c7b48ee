"""Facts about models: window, limits, capabilities and prices.

The facts have three sources, and each overrides the previous one field by field: a data file in this package, which
`tools/registry.py` builds; the user's `models.json` in the config folder (`LONGTALK_MODELS` names another file); and
calls to `register`.

A model is found by its full name, never by a prefix. The lookup tries, in this order:

1. the name or one of its aliases, ignoring case;
2. the name without a date at its end (`-20260101`, `@20260101`, `-2026-01-01`) or without `-latest`;
3. a fine-tuned model (`ft:BASE:…`) as `ft:BASE`, else as its base, without prices;
4. on OpenRouter, `NAME:VARIANT` as `NAME`, without prices, because a variant is served by another provider.

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
from longtalk.models.prices import Prices, Rates, Tier

__all__ = ["Model", "Prices", "Provider", "Rates", "Tier", "find", "models", "providers", "register"]

FILE = os.path.join(os.path.dirname(__file__), "data", "models.json.gz")
_MAX_BYTES = 5_000_000
_UNLISTED = (
    *("local", "ollama", "vllm", "llamacpp", "lmstudio", "compatible", "litellm"),
    *("claude-cli", "codex-cli", "gemini-cli"),
)
"""Providers without models in the data file: servers that run models of the user's choice, and command-line tools."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Caching: TypeAlias = Literal["none", "automatic", "marks"]
"""How a provider caches request prefixes: not at all, automatically, or up to marks in the request."""


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The known facts about a model. A fact that is None is unknown."""

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
    """How long a cached prefix is kept after its last use, in seconds."""
    binds_thinking: bool | None = None
    """Whether the model's thinking blocks are valid only for the model and account that made them."""
    keeps_state: bool | None = None
    """Whether the provider can store the conversation itself."""
    prices: Prices | None = None

    @property
    def label(self) -> str:
        """The full name of the model, as `provider:model`."""
        return _label(self.provider, self.name)


class Provider(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A provider in the package's data file. `longtalk.providers.registry` has the providers that a chat can use."""

    wire: str
    base_url: str | None = None
    base_url_variable: str | None = None
    key_variable: str | None = None
    keeps_state: bool = False
    binds_thinking: bool | None = None
    """False if this provider returns thinking as plain text for every model."""
    cache_seconds: Count | None = None
    """How long a cached prefix is kept, in seconds, for models that don't specify it."""
    models_of: str = ""
    """The name of the provider whose list of models this one shares; empty if it has its own."""


class _ProviderModels(Provider, frozen=True, kw_only=True):
    """A provider in the package's data file with its models. Each model is decoded when it is looked up."""

    models: dict[str, msgspec.Raw] = {}
    aliases: dict[str, str] = {}


class _Source(msgspec.Struct, frozen=True):
    """A package from which facts in the data file were taken."""

    package: str
    version: str
    licence: str


class _File(msgspec.Struct, frozen=True):
    format: Literal[1]
    built: str
    sources: list[_Source]
    providers: dict[str, msgspec.Raw]


_registered: dict[str, Model] = {}


def find(label: str) -> Model | None:
    """Return the known facts about a model, given as `provider:model`; None if the model is unknown."""
    return _find(label, {**_overrides(), **_registered})


def register(model: Model | Mapping[str, Any]) -> Model:
    """Register a model in this process, and return it.

    A `Model` replaces all known facts about the model. A mapping overrides them field by field:

        register({"provider": "openrouter", "name": "acme/talker-2", "window": 64_000})
    """
    what = "The registered model"
    if isinstance(model, Model):
        made = _make_model(msgspec.to_builtins(model), what)
    elif isinstance(model, Mapping):
        provider, name = model.get("provider"), model.get("name", "")
        if not isinstance(provider, str) or not isinstance(name, str):
            raise InputError("A registered model needs a `provider` and a `name`, both strings.")
        made = _override(provider, name, model, {**_overrides(), **_registered}, what)
    else:
        raise InputError(f"`register` takes a Model or a mapping of its fields, not {type(model).__name__}.")
    _registered[made.label] = made
    return made


def is_custom(model: Model) -> bool:
    """Return True if the facts come from the user's file or from `register`, not from the package's data file."""
    return any(model is made for made in (*_overrides().values(), *_registered.values()))


def models(query: str = "", *, provider: str | None = None) -> Iterator[Model]:
    """Yield the models whose label or aliases contain all words of the query, sorted by provider and name."""
    if provider is not None:
        _check_provider(provider, "`provider`")
    changed = {**_overrides(), **_registered}
    words = query.lower().split()
    for each in sorted(providers()) if provider is None else [provider]:
        entry = _provider_models(each)
        names = {*entry.models, *(made.name for made in changed.values() if made.provider == each)}
        for name in sorted(names, key=lambda name: (name.lower(), name)):
            found = _look_up(each, name, changed)
            if found is not None:
                said = " ".join((found.label, *found.aliases)).lower()
                if all(word in said for word in words):
                    yield found


def providers() -> dict[str, Provider]:
    """Return the providers in the package's data file, by name."""
    return {name: msgspec.json.decode(raw, type=Provider) for name, raw in _file().providers.items()}


# Names

_DATE = r"20[2-9]\d(?:(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])|-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))"
_UNDATED = re.compile(rf"(.+?)(?:[-@]{_DATE}|-latest)", re.IGNORECASE)
_TUNED = re.compile(r"(ft:)([^:]+)(?::.*)?", re.IGNORECASE | re.DOTALL)


def _candidates(provider: str, name: str) -> Iterator[tuple[str, bool]]:
    """Yield the names under which a model may be listed, each with whether the prices listed there apply to it."""
    yield from ((each, True) for each in _without_date(name))
    tuned = _TUNED.fullmatch(name)
    if tuned:
        yield from ((tuned[1] + each, True) for each in _without_date(tuned[2]))
        yield from ((each, False) for each in _without_date(tuned[2]))
    plain, colon, _ = name.rpartition(":")
    if provider == "openrouter" and colon:
        yield from ((each, False) for each in _without_date(plain))


def _without_date(name: str) -> list[str]:
    found = _UNDATED.fullmatch(name)
    return [name, found[1]] if found else [name]


def _find(label: str, changed: Mapping[str, Model]) -> Model | None:
    provider, _, name = label.partition(":")
    if provider not in _UNLISTED and provider not in _file().providers:
        return None
    for candidate, priced in _candidates(provider, name):
        found = _look_up(provider, candidate, changed)
        if found is not None:
            return found if priced else msgspec.structs.replace(found, prices=None)
    return None


def _look_up(provider: str, name: str, changed: Mapping[str, Model]) -> Model | None:
    """Return the model with this name, or None if it is not listed.

    `changed` has the models from the user's file and from `register`, which take precedence over the data file.
    """
    entry = _provider_models(provider)
    spelt = name if name in entry.models or name in entry.aliases else _spellings(provider).get(name.lower(), name)
    listed = entry.aliases.get(spelt, spelt)
    for wanted in (name, listed):
        if _label(provider, wanted) in changed:
            return changed[_label(provider, wanted)]
    for made in changed.values():
        if made.provider == provider and name.lower() in map(str.lower, (made.name, *made.aliases)):
            return made
    raw = entry.models.get(listed)
    if raw is None:
        return None
    facts = {"keeps_state": entry.keeps_state, **msgspec.json.decode(raw)}
    if entry.binds_thinking is not None:
        facts["binds_thinking"] = entry.binds_thinking
    if facts.get("cache") != "none":
        facts.setdefault("cache_seconds", entry.cache_seconds)
    aliases = _aliases(provider).get(listed, ())
    return msgspec.convert({**facts, "provider": provider, "name": listed, "aliases": aliases}, Model)


def _label(provider: str, name: str) -> str:
    return f"{provider}:{name}" if name else provider


# The data file


@cache
def _file() -> _File:
    import zlib

    with open(FILE, "rb") as file:
        return msgspec.json.decode(zlib.decompress(file.read(), 31), type=_File)


@cache
def _provider_models(provider: str) -> _ProviderModels:
    """Return a provider's part of the package's data file. For unlisted providers the file is not opened."""
    if provider in _UNLISTED:
        return _ProviderModels(wire="")
    entry = msgspec.json.decode(_file().providers[provider], type=_ProviderModels)
    if not entry.models_of:
        return entry
    same = _provider_models(entry.models_of)
    return msgspec.structs.replace(entry, models=same.models, aliases=same.aliases)


@cache
def _spellings(provider: str) -> dict[str, str]:
    """Return the names and aliases of a provider's models, by their spelling in lower case."""
    entry = _provider_models(provider)
    return {name.lower(): name for name in (*entry.aliases, *entry.models)}


@cache
def _aliases(provider: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for alias, name in _provider_models(provider).aliases.items():
        found[name] = (*found.get(name, ()), alias)
    return found


# The user's file and registered models


def path() -> str:
    """Return the path of the user's file with facts about models, which may not exist."""
    return os.environ.get("LONGTALK_MODELS", "").strip() or os.path.join(user_dirs.config(), "models.json")


def _overrides() -> Mapping[str, Model]:
    """Return the models in the user's file, by label. The file is read again whenever it has changed."""
    global _seen
    try:
        where = path()
    except InputError:
        # Without a home folder there can't be such a file.
        return {}
    try:
        found = os.stat(where)
    except (OSError, ValueError) as problem:
        if os.environ.get("LONGTALK_MODELS", "").strip():
            raise InputError(f"LONGTALK_MODELS names {where!a}, which can't be read: {problem}.") from None
        return {}
    now = (where, found.st_mtime_ns, found.st_size)
    if _seen[0] != now:
        _seen = (now, _read_file(where, found))
    return _seen[1]


_seen: tuple[tuple[str, int, int], Mapping[str, Model]] = (("", 0, 0), {})
"""The path, time and size of the user's file when it was last read, and the models in it."""


def _read_file(where: str, found: os.stat_result) -> Mapping[str, Model]:
    what = f"The file {where!a}"
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{what} is not a regular file: it must be a JSON file that describes models.")
    if found.st_size > _MAX_BYTES:
        raise InputError(f"{what} has {found.st_size:,} bytes; the maximum is {_MAX_BYTES:,}.")
    try:
        with open(where, "rb") as file:
            said = msgspec.json.decode(file.read(_MAX_BYTES + 1))
    except OSError as problem:
        raise InputError(f"{what} can't be read: {problem.strerror or problem}.") from None
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{what} is not JSON: {problem}.") from None
    if not isinstance(said, dict):
        raise InputError(f"{what} must contain a JSON object that maps 'provider:model' to the facts about the model.")
    made: dict[str, Model] = {}
    for label, fields in said.items():
        if not isinstance(fields, dict):
            raise InputError(f"{what}: {label!a} must be described by an object, not {type(fields).__name__}.")
        provider, _, name = label.partition(":")
        made[label] = _override(provider, name, fields, {}, what)
    return made


def _override(provider: str, name: str, fields: Mapping[str, Any], changed: Mapping[str, Model], what: str) -> Model:
    """Return a model with these fields in place of the known facts. Prices are replaced one by one.

    `changed` has the models that take precedence over the data file. `what` names the source in error messages.
    """
    known = _find(_label(provider, name), changed)
    facts = msgspec.to_builtins(known) if known is not None else {}
    if known is not None and known.name != name:
        # The facts come from another model, whose aliases don't apply.
        facts.pop("aliases", None)
    prices, before = fields.get("prices"), facts.get("prices")
    if isinstance(prices, Mapping) and isinstance(before, dict):
        if not prices.keys().isdisjoint(Rates.__struct_fields__):
            # A new price also applies to long requests, unless the caller gives tiers.
            before.pop("tiers", None)
        fields = {**fields, "prices": {**before, **prices}}
    made = _make_model({**facts, "provider": provider, "name": name, **fields}, what)
    if (made.provider, made.name) != (provider, name):
        raise InputError(
            f"{what}: {_label(provider, name)!a} is described as {made.label!a}: leave out `provider` and `name`."
        )
    return made


def _make_model(facts: Mapping[str, Any], what: str) -> Model:
    """Return a model with these facts. Raises `InputError`, naming the source `what`, if the facts are not valid."""
    try:
        made = msgspec.convert(facts, Model)
    except (msgspec.ValidationError, RecursionError) as problem:
        label = f"{facts.get('provider')}:{facts.get('name')}"
        raise InputError(f"{what}: the description of {label!a} is not valid: {problem}.") from None
    _check_provider(made.provider, what)
    if not made.name and made.provider != "local":
        raise InputError(f"{what}: {made.provider!a} names only a provider; use 'provider:model'.")
    return made


def _check_provider(provider: str, what: str) -> None:
    known = providers()
    if provider not in known:
        import difflib

        close = difflib.get_close_matches(provider, known, n=1, cutoff=0.5)
        near = f"Did you mean {close[0]!r}? " if close else ""
        raise InputError(f"{what}: unknown provider {provider!a}. {near}Known: {', '.join(known)}.")

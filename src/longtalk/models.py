"""What is known about models: window, limits, what they can do, what they cost.

The facts come in three layers, each over the one before it, field by field: a data file in this package, which
`tools/registry.py` builds; the user's `models.json` in the config folder (`LONGTALK_MODELS` names another file); and
what the program has handed to `register`.

A model is found by its whole name, never by how its name begins. In this order:

1. the name itself, or another name that the registry has for it; capitals don't matter;
2. the name without a date at its end (`-20260101`, `@20260101`, `-2026-01-01`) or without `-latest`;
3. a fine-tuned model (`ft:BASE:…`) as `ft:BASE`, else as its base, without prices;
4. on OpenRouter, `NAME:VARIANT` as `NAME`, without prices, since a variant is served by somebody else.

What is not found is not known: its window and its prices are None.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from longtalk import folders
from longtalk.errors import InputError
from longtalk.prices import Prices, Rates, Tier

__all__ = ["Model", "Prices", "Provider", "Rates", "Tier", "find", "models", "providers", "register"]

FILE = os.path.join(os.path.dirname(__file__), "data", "models.json.gz")
_MOST_BYTES = 5_000_000
_OWN = (
    *("local", "ollama", "vllm", "llamacpp", "lmstudio", "compatible", "litellm"),
    *("claude-cli", "codex-cli", "gemini-cli"),
)
"""Servers that have the models that somebody has put there, and programs: the data file knows no models of theirs."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Caching: TypeAlias = Literal["none", "automatic", "marks"]
"""Whether a provider keeps the beginning of a request: not, by itself, or where it is marked."""


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is known about a model. None is what nobody knows."""

    provider: str
    name: str
    aliases: tuple[str, ...] = ()
    """Other names of it."""
    window: Count | None = None
    """Tokens that fit into a request and its answer."""
    input_limit: Count | None = None
    """Tokens that a request may have, where that is less than the window."""
    output_limit: Count | None = None
    """Tokens that an answer may have."""
    tools: bool | None = None
    streaming: bool | None = None
    structured_output: bool | None = None
    cache: Caching | None = None
    cache_seconds: Count | None = None
    """For how long the beginning of a request is kept after it was last used."""
    binds_thinking: bool | None = None
    """Its thinking comes as blocks that are valid only where they were made."""
    keeps_state: bool | None = None
    """Its provider can remember the conversation itself."""
    prices: Prices | None = None

    @property
    def label(self) -> str:
        """As `provider:model`."""
        return _label(self.provider, self.name)


class Provider(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the data file says about a provider. Those that a chat can speak to are in `providers/registry.py`."""

    wire: str
    base_url: str | None = None
    base_url_variable: str | None = None
    key_variable: str | None = None
    keeps_state: bool = False
    binds_thinking: bool | None = None
    """False where thinking comes as text, whatever the model."""
    cache_seconds: Count | None = None
    """For how long it keeps the beginning of a request, for a model that has no time of its own."""
    models_of: str = ""
    """Who has the same models."""


class _Shelf(Provider, frozen=True, kw_only=True):
    """A provider with its models: each is read when it is asked for."""

    models: dict[str, msgspec.Raw] = {}
    aliases: dict[str, str] = {}


class _Source(msgspec.Struct, frozen=True):
    """Where the facts come from."""

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
    """What is known about `provider:model`; None when that is nothing."""
    return _find(label, {**_overrides(), **_registered})


def register(model: Model | Mapping[str, Any]) -> Model:
    """Describe a model to this process. A `Model` is taken whole; a mapping goes over what is known, field by field.

    register({"provider": "openrouter", "name": "acme/talker-2", "window": 64_000})
    """
    what = "What is registered"
    if isinstance(model, Model):
        made = _made(msgspec.to_builtins(model), what)
    elif isinstance(model, Mapping):
        provider, name = model.get("provider"), model.get("name", "")
        if not isinstance(provider, str) or not isinstance(name, str):
            raise InputError("A model is registered with a `provider` and a `name`, as texts.")
        made = _over(provider, name, model, {**_overrides(), **_registered}, what)
    else:
        raise InputError(f"A Model or a mapping of its fields is registered, not {type(model).__name__}.")
    _registered[made.label] = made
    return made


def is_own(model: Model) -> bool:
    """Whether this is what the user or the program has said, not the data file."""
    return any(model is made for made in (*_overrides().values(), *_registered.values()))


def models(query: str = "", *, provider: str | None = None) -> Iterator[Model]:
    """The models whose label or aliases have all words of the query, by provider and name."""
    if provider is not None:
        _check_provider(provider, "`provider`")
    changed = {**_overrides(), **_registered}
    words = query.lower().split()
    for each in sorted(providers()) if provider is None else [provider]:
        shelf = _shelf(each)
        names = {*shelf.models, *(made.name for made in changed.values() if made.provider == each)}
        for name in sorted(names, key=lambda name: (name.lower(), name)):
            found = _look_up(each, name, changed)
            if found is not None:
                said = " ".join((found.label, *found.aliases)).lower()
                if all(word in said for word in words):
                    yield found


def providers() -> dict[str, Provider]:
    """The providers by name, as the data file has them."""
    return {name: msgspec.json.decode(raw, type=Provider) for name, raw in _file().providers.items()}


# Names

_DATE = r"20[2-9]\d(?:(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])|-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))"
_UNDATED = re.compile(rf"(.+?)(?:[-@]{_DATE}|-latest)", re.IGNORECASE)
_TUNED = re.compile(r"(ft:)([^:]+)(?::.*)?", re.IGNORECASE | re.DOTALL)


def _candidates(provider: str, name: str) -> Iterator[tuple[str, bool]]:
    """The names under which a model may be known, and whether its prices hold for this one."""
    yield from ((each, True) for each in _undated(name))
    tuned = _TUNED.fullmatch(name)
    if tuned:
        yield from ((tuned[1] + each, True) for each in _undated(tuned[2]))
        yield from ((each, False) for each in _undated(tuned[2]))
    plain, colon, _ = name.rpartition(":")
    if provider == "openrouter" and colon:
        yield from ((each, False) for each in _undated(plain))


def _undated(name: str) -> list[str]:
    found = _UNDATED.fullmatch(name)
    return [name, found[1]] if found else [name]


def _find(label: str, changed: Mapping[str, Model]) -> Model | None:
    provider, _, name = label.partition(":")
    if provider not in _OWN and provider not in _file().providers:
        return None
    for candidate, priced in _candidates(provider, name):
        found = _look_up(provider, candidate, changed)
        if found is not None:
            return found if priced else msgspec.structs.replace(found, prices=None)
    return None


def _look_up(provider: str, name: str, changed: Mapping[str, Model]) -> Model | None:
    """The model of this name: as somebody has described it here, else as the data file does."""
    shelf = _shelf(provider)
    spelt = name if name in shelf.models or name in shelf.aliases else _spellings(provider).get(name.lower(), name)
    listed = shelf.aliases.get(spelt, spelt)
    for wanted in (name, listed):
        if _label(provider, wanted) in changed:
            return changed[_label(provider, wanted)]
    for made in changed.values():
        if made.provider == provider and name.lower() in map(str.lower, (made.name, *made.aliases)):
            return made
    raw = shelf.models.get(listed)
    if raw is None:
        return None
    facts = {"keeps_state": shelf.keeps_state, **msgspec.json.decode(raw)}
    if shelf.binds_thinking is not None:
        facts["binds_thinking"] = shelf.binds_thinking
    if facts.get("cache") != "none":
        facts.setdefault("cache_seconds", shelf.cache_seconds)
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
def _shelf(provider: str) -> _Shelf:
    """A provider's part of the file. Of those that it knows nothing about, nothing is opened."""
    if provider in _OWN:
        return _Shelf(wire="")
    shelf = msgspec.json.decode(_file().providers[provider], type=_Shelf)
    if not shelf.models_of:
        return shelf
    same = _shelf(shelf.models_of)
    return msgspec.structs.replace(shelf, models=same.models, aliases=same.aliases)


@cache
def _spellings(provider: str) -> dict[str, str]:
    """Names and aliases by how they are spelt in small letters."""
    shelf = _shelf(provider)
    return {name.lower(): name for name in (*shelf.aliases, *shelf.models)}


@cache
def _aliases(provider: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for alias, name in _shelf(provider).aliases.items():
        found[name] = (*found.get(name, ()), alias)
    return found


# What the user says


def path() -> str:
    """Where the user's own file is, if there is one."""
    return os.environ.get("LONGTALK_MODELS", "").strip() or os.path.join(folders.config(), "models.json")


def _overrides() -> Mapping[str, Model]:
    """The user's own models by label, as the file has them now."""
    global _seen
    where = path()
    try:
        found = os.stat(where)
    except (OSError, ValueError) as problem:
        if os.environ.get("LONGTALK_MODELS", "").strip():
            raise InputError(f"LONGTALK_MODELS names {where!a}, which can't be read: {problem}.") from None
        return {}
    now = (where, found.st_mtime_ns, found.st_size)
    if _seen[0] != now:
        _seen = (now, _read(where, found))
    return _seen[1]


_seen: tuple[tuple[str, int, int], Mapping[str, Model]] = (("", 0, 0), {})
"""What file was read last, and what it says."""


def _read(where: str, found: os.stat_result) -> Mapping[str, Model]:
    what = f"The file {where!a}"
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{what} is no file: models are described in one, as JSON.")
    if found.st_size > _MOST_BYTES:
        raise InputError(f"{what} has {found.st_size:,} bytes, and at most {_MOST_BYTES:,} are read.")
    try:
        with open(where, "rb") as file:
            said = msgspec.json.decode(file.read(_MOST_BYTES + 1))
    except OSError as problem:
        raise InputError(f"{what} can't be read: {problem.strerror or problem}.") from None
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{what} is not JSON: {problem}.") from None
    if not isinstance(said, dict):
        raise InputError(f"{what} holds no object: it maps 'provider:model' to what is known about it.")
    made: dict[str, Model] = {}
    for label, fields in said.items():
        if not isinstance(fields, dict):
            raise InputError(f"{what}: {label!a} is described by an object, not by {type(fields).__name__}.")
        provider, _, name = label.partition(":")
        made[label] = _over(provider, name, fields, {}, what)
    return made


def _over(provider: str, name: str, fields: Mapping[str, Any], changed: Mapping[str, Model], what: str) -> Model:
    """A model with these fields over what is known about it; those of its prices one by one."""
    known = _find(_label(provider, name), changed)
    facts = msgspec.to_builtins(known) if known is not None else {}
    if known is not None and known.name != name:
        # It stands on another one, whose other names are not its own.
        facts.pop("aliases", None)
    prices, before = fields.get("prices"), facts.get("prices")
    if isinstance(prices, Mapping) and isinstance(before, dict):
        if not prices.keys().isdisjoint(Rates.__struct_fields__):
            # A new price is for long requests too, unless that is said.
            before.pop("tiers", None)
        fields = {**fields, "prices": {**before, **prices}}
    made = _made({**facts, "provider": provider, "name": name, **fields}, what)
    if (made.provider, made.name) != (provider, name):
        raise InputError(f"{what}: {_label(provider, name)!a} can't be described as {made.label!a}.")
    return made


def _made(facts: Mapping[str, Any], what: str) -> Model:
    """A model of these facts, once they are known to be some."""
    try:
        made = msgspec.convert(facts, Model)
    except (msgspec.ValidationError, RecursionError) as problem:
        label = f"{facts.get('provider')}:{facts.get('name')}"
        raise InputError(f"{what}: {label!a} can't be described like this: {problem}.") from None
    _check_provider(made.provider, what)
    if not made.name and made.provider != "local":
        raise InputError(f"{what}: {made.provider!a} names a provider and no model.")
    return made


def _check_provider(provider: str, what: str) -> None:
    known = providers()
    if provider not in known:
        import difflib

        close = difflib.get_close_matches(provider, known, n=1, cutoff=0.5)
        near = f"Did you mean {close[0]!r}? " if close else ""
        raise InputError(f"{what}: there is no provider {provider!a}. {near}Known are {', '.join(known)}.")

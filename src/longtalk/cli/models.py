"""`longtalk models`: print the known models with their limits and prices."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches

import msgspec

from longtalk.cli.output import escape_line, pluralize, print_json, print_note
from longtalk.cli.tables import Column, print_table
from longtalk.models.registry import Model, Prices, models
from longtalk.providers.local.catalog import MODELS, choose_default
from longtalk.providers.registry import PROVIDERS
from longtalk.service.settings import find_key, load_credentials, load_settings

_COLUMNS = (
    Column("model", shortest=40),
    Column("window", rank=1, is_number=True),
    Column("answer", rank=3, is_number=True),
    Column("cache", rank=4),
    Column("in", is_number=True),
    Column("out", is_number=True),
    Column("cached", rank=2, is_number=True),
    Column("written", rank=5, is_number=True),
    Column("long requests", rank=6),
)
_STORE_KEY = "Store one with `longtalk config set-key PROVIDER`."


def run(*, words: tuple[str, ...], provider: str | None, ready: bool, as_json: bool) -> None:
    """Print one line for each matching model; with `ready`, for those alone that can answer here.

    Exit with status 1 if no model matches.
    """
    local = _list_local(words) if provider in (None, "local") else []
    listed = models(" ".join(words), provider=provider)
    with_key = _list_providers_with_key() if ready else ()
    found = [*local, *(each for each in listed if not ready or each.provider in with_key)]
    for name, each in load_settings().models.items() if words and not as_json else ():
        if all(word.lower() in name.lower() for word in words):
            print_note(f"{escape_line(name)} is your alias for {each.model}.")
    if not found and ready and listed:
        print_note(f"No model of these can answer here: an API key is missing. {_STORE_KEY}")
        raise SystemExit(1)
    if not found:
        print_note(f"No known model matches.{_suggest_words(words)} To list all models, run `longtalk models`.")
        raise SystemExit(1)
    if as_json:
        for model in found:
            print_json({"label": model.label, **msgspec.to_builtins(model)})
        return
    print_table(_COLUMNS, map(_format_model, found))
    print_note(f"{pluralize(len(found), 'model')}. Prices are in US dollars per million tokens.")
    if not (words or provider or ready):
        print_note("Those that can answer here, with the API keys that there are: `longtalk models --ready`.")
    for model in found if len(words) == 1 else ():
        if words[0].lower() in (*model.aliases, *(f"{model.provider}:{each}" for each in model.aliases)):
            print_note(f"{model.provider}:{words[0].rpartition(':')[2]} is {model.label}.")
    if local:
        print_note(
            f"`local` is local:{choose_default()} on this machine. Other local models: local:/path/model.gguf, or "
            "ollama:NAME (`ollama list`)."
        )


def _list_providers_with_key() -> set[str]:
    """Return the providers whose API key is stored or in the environment."""
    stored = load_credentials()
    return {
        name
        for name, each in PROVIDERS.items()
        if find_key(stored, name)
        or any(variable and os.environ.get(variable) for variable in (each.key_variable, each.other_key_variable))
    }


def _suggest_words(words: tuple[str, ...]) -> str:
    """Return " Did you mean …?" with the words that are in names of models and close to these; empty if none is."""
    known = {part for each in models() for part in re.split(r"[-_/.:@ ]", each.label.lower()) if len(part) > 2}
    near = [next(iter(get_close_matches(each.lower(), known, n=1, cutoff=0.75)), each) for each in words]
    return f" Did you mean {' '.join(near)!r}?" if near != list(words) and any(models(" ".join(near))) else ""


def _list_local(words: tuple[str, ...]) -> list[Model]:
    """Return the built-in models whose names or titles contain all words. They cost nothing."""
    return [
        Model(provider="local", name=each.name, prices=Prices(input=0, output=0))
        for each in MODELS.values()
        if all(word.lower() in f"local:{each.name} {each.title}".lower() for word in words)
    ]


def _format_model(model: Model) -> tuple[str, ...]:
    limits = (format_number(model.window), format_number(model.output_limit), model.cache or "-")
    if model.prices is None:
        return (model.label, *limits, "-", "-", "-", "-", "-")
    prices = (model.prices.input, model.prices.output, model.prices.cache_read, model.prices.cache_write)
    longer = [
        f"above {tier.above:,}: {format_number(tier.input)} in, {format_number(tier.output)} out"
        for tier in model.prices.tiers
    ]
    return (model.label, *limits, *map(format_number, prices), "; ".join(longer) or "-")


def format_number(value: float | None) -> str:
    """Return a number as text, or `-` if it is None."""
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.12g}"

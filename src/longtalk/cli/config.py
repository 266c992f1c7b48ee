"""`longtalk config`: show and change the settings, and store API keys of providers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from longtalk._util.suggest import suggest
from longtalk.cli.earlier import format_options
from longtalk.cli.options import check_names, list_removed, parse_options
from longtalk.cli.output import escape_line, print_json, print_note, print_result, shorten
from longtalk.cli.tables import Column, print_table
from longtalk.errors import InputError
from longtalk.policies.notation import parse_policy
from longtalk.providers.registry import PROVIDERS, complete_label
from longtalk.service.settings import (
    ModelSettings,
    Settings,
    check_credential,
    get_settings_path,
    load_credentials,
    load_settings,
    store_credential,
)
from longtalk.service.settings_file import set_alias, set_setting

_TALKS = ("store", "default_model", "policy", "models")
"""The settings that all commands use. The others are those of the service."""
_ALIASES = (
    Column("name"),
    Column("model", shortest=16),
    Column("policy", rank=1),
    Column("system", rank=2, shortest=20),
    Column("options", rank=3, shortest=12),
)


_RESERVED = ("list", "set", "show", "remove")
"""What users of other tools write in the place of a name."""


def set_key(provider: str, *, as_json: bool) -> None:
    """Read a key from standard input, without showing it on a terminal, and store it."""
    check_credential(provider, "")
    given = (
        click.prompt(f"API key of {provider}", hide_input=True, default="", show_default=False)
        if sys.stdin.isatty()
        else sys.stdin.readline()
    )
    key = given.strip()
    if not given and not sys.stdin.isatty():
        raise InputError("No key was given: pipe one line in.")
    if not key:
        raise InputError(f"The key is empty, so nothing was changed. `longtalk config unset {provider}` removes a key.")
    path = store_credential(provider, key)
    result = {"provider": provider, "stored": True, "file": str(path)}
    print_result(result, f"Stored the API key of {provider} in {path}.", as_json=as_json, show=print_note)


def unset(name: str, *, as_json: bool) -> None:
    """Remove the alias, the stored key of a provider, or the setting that has this name."""
    if name in load_settings().models:
        path, what = set_alias(name, None), f"the alias {escape_line(name)}"
    elif name in load_credentials():
        path, what = store_credential(name, ""), f"the API key of {name}"
    elif name in PROVIDERS:
        raise InputError(f"There is no stored API key of {name}.")
    elif name in msgspec.to_builtins(load_settings()):
        path, what = set_setting(name, ""), name
    else:
        known = (*load_settings().models, *load_credentials(), *msgspec.to_builtins(load_settings()))
        hint = f"{suggest(name, known)} `longtalk config show` prints all."
        raise InputError(f"There is no setting, alias or stored API key {name!r}.{hint}")
    print_result({"name": name, "file": str(path)}, f"Removed {what} in {path}.", as_json=as_json, show=print_note)
    if not what.startswith("the alias"):
        return
    if name in load_credentials():
        print_note(f"The API key of the provider {name} stays. To remove it, too: longtalk config unset {name}")
    if load_settings().default_model == name:
        print_note("It is still your default model. Choose another one: longtalk models default MODEL")


def choose_default_model(name: str, *, as_json: bool) -> None:
    """Store the model of conversations for which none is chosen; without a name, print it."""
    if not name:
        show(None, "default_model", as_json=as_json)
        return
    set_value("default_model", name, as_json=as_json)


def set_value(name: str, value: str, *, as_json: bool) -> None:
    """Store one setting; without a value, print it. As JSON, the value that is now in force is printed."""
    if not value:
        show(None, name, as_json=as_json)
        return
    if name == "policy":
        parse_policy(value)
    if name == "model":
        raise InputError("The setting is called 'default_model': longtalk config set default_model MODEL")
    if name == "default_model" and (":" in value or value not in load_settings().models):
        value = _complete_model(value)
    path = set_setting(name, value)
    result = {**_describe_setting(name, None), "file": str(path)} if as_json else {}
    print_result(result, f"Stored {name} in {path}.", as_json=as_json, show=print_note)


def list_aliases(*, as_json: bool) -> None:
    """Print a line for each model with a name of its own."""
    found = load_settings().models
    _print_aliases(found, as_json=as_json)
    if not found and not as_json:
        print_note("There are no aliases yet: `longtalk config alias NAME MODEL` stores one.")


def _print_aliases(found: Mapping[str, ModelSettings], *, as_json: bool) -> None:
    if as_json:
        for name, each in found.items():
            print_json(_describe_alias(name, each))
        return
    rows = [
        (name, each.model, each.policy or "-", shorten(each.system, 200) or "-", format_options(each.options) or "-")
        for name, each in found.items()
    ]
    print_table(_ALIASES, rows)


def alias(
    name: str,
    model: str | None,
    policy: str,
    system: str,
    base_url: str | None,
    options: Sequence[tuple[str, str]],
    *,
    as_json: bool,
) -> None:
    """Store a model under a name of its own; without a model and its settings, print what the name means.

    Without a model, what is not given stays as it was stored; an empty value takes an option back.
    """
    settings = load_settings()
    before = settings.models.get(name)
    parsed = parse_options(options) or {}
    if model is not None:
        made = ModelSettings(_complete_model(model))
    elif policy or system or base_url or options:
        default = settings.models.get(settings.default_model)
        made = before or ModelSettings(default.model if default is not None else settings.default_model)
    elif before is None:
        hint = f"{suggest(name, settings.models)} To store one, add a MODEL, or -s with a system text."
        raise InputError(f"There is no alias {name!r}.{hint}")
    else:
        _print_aliases({name: before}, as_json=as_json)
        return
    provider = made.model.partition(":")[0]
    check_names(parsed, provider, PROVIDERS[provider].wire if provider in PROVIDERS else "")
    kept = {key: value for key, value in made.options.items() if key not in list_removed(options)}
    made = msgspec.structs.replace(
        made,
        policy=policy or made.policy,
        memory={} if policy else made.memory,
        options=kept | parsed,
        system=system or made.system,
        base_url=base_url or made.base_url,
    )
    if policy:
        parse_policy(policy)
    if before is None and name in (*PROVIDERS, *_RESERVED):
        what = "a provider" if name in PROVIDERS else "a word of this command"
        raise InputError(f"{name!r} is {what}: choose another name for the alias, such as my-{name}.")
    path = set_alias(name, made)
    text = f"Stored the alias {escape_line(name)} for {made.model} in {path}."
    print_result({**_describe_alias(name, made), "file": str(path)}, text, as_json=as_json, show=print_note)


def _describe_alias(name: str, model: ModelSettings) -> dict[str, Any]:
    return {"name": name, **msgspec.to_builtins(model)}


def _complete_model(name: str) -> str:
    """Return the full name of a model; raise `InputError` if its provider is unknown."""
    full = complete_label(name)
    if full.partition(":")[0] not in PROVIDERS or (full in PROVIDERS and full != "local"):
        raise InputError(f"{name!r} names no known provider: write it as provider:model.")
    return full


def show(settings: str | None, name: str | None, *, as_json: bool) -> None:
    """Print the settings, and the providers whose keys are stored; with a name, only the value of this setting."""
    path = Path(settings) if settings else None
    if name is not None:
        found = _describe_setting(name, path)
        value = found["value"]
        print_result(found, value if isinstance(value, str) else msgspec.json.encode(value).decode(), as_json=as_json)
        return
    values = msgspec.to_builtins(load_settings(path))
    defaults = msgspec.to_builtins(Settings())
    known = {name: value for name, value in values.items() if name in _TALKS or value != defaults[name]}
    print_result(values, msgspec.json.format(msgspec.json.encode(known), indent=2).decode(), as_json=as_json)
    if not as_json:
        print_note("Settings of `longtalk serve` that have their default value are left out; --json prints all.")
        print_note(f"Settings: {path or get_settings_path()}.")
        print_note(f"Stored API keys: {', '.join(sorted(load_credentials())) or 'none'}.")


def _describe_setting(name: str, path: Path | None) -> dict[str, Any]:
    """Return the name and the value of a setting."""
    values = msgspec.to_builtins(load_settings(path))
    if name not in values:
        raise InputError(f"There is no setting {name!r}.{suggest(name, values)} `longtalk config show` prints all.")
    return {"name": name, "value": values[name]}

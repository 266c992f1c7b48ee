"""`longtalk config`: show and change the settings, and store API keys of providers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from longtalk._util.suggest import suggest
from longtalk.cli.output import escape_line, print_json, print_note, print_result, shorten
from longtalk.cli.tables import Column, print_table
from longtalk.errors import InputError
from longtalk.policies.notation import parse_policy
from longtalk.providers.registry import PROVIDERS, suggest_label
from longtalk.service.settings import (
    ModelSettings,
    check_credential,
    get_credentials_path,
    get_settings_path,
    load_credentials,
    load_settings,
    store_credential,
)
from longtalk.service.settings_file import set_alias, set_setting

_ALIASES = (
    Column("name"),
    Column("model", shortest=16),
    Column("policy", rank=1),
    Column("system", rank=2, shortest=20),
)


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
        raise InputError("No key was given: pipe one line in. An empty line removes the stored key.")
    if not key and provider not in load_credentials():
        path = get_credentials_path()
        text = f"There is no stored key of {provider}, so nothing was changed."
    else:
        path = store_credential(provider, key)
        text = f"{'Stored' if key else 'Removed'} the key of {provider} in {path}."
    result = {"provider": provider, "stored": bool(key), "file": str(path)}
    print_result(result, text, as_json=as_json, show=print_note)


def choose_default_model(name: str, *, as_json: bool) -> None:
    """Store the model of conversations for which none is chosen; without a name, print it."""
    if not name:
        show(None, "default_model", as_json=as_json)
        return
    set_value("default_model", name, as_json=as_json)


def set_value(name: str, value: str, *, as_json: bool) -> None:
    """Store one setting; an empty value removes it. As JSON, the value that is now in force is printed."""
    if name == "policy" and value:
        parse_policy(value)
    if name == "model":
        raise InputError("The setting is called 'default_model': longtalk config set default_model MODEL")
    if name == "default_model" and value:
        try:
            _check_model(value)
        except InputError:
            if value not in load_settings().models:
                raise
    path = set_setting(name, value)
    result = {**_describe_setting(name, None), "file": str(path)} if as_json else {}
    print_result(result, f"{'Stored' if value else 'Removed'} {name} in {path}.", as_json=as_json, show=print_note)


def list_aliases(*, as_json: bool) -> None:
    """Print a line for each model with a name of its own."""
    found = load_settings().models
    if as_json:
        for name, each in found.items():
            print_json(_describe_alias(name, each))
        return
    rows = [(name, each.model, each.policy or "-", shorten(each.system, 200) or "-") for name, each in found.items()]
    print_table(_ALIASES, rows)
    if not found:
        print_note("There are no aliases yet: `longtalk config alias NAME MODEL` stores one.")


def alias(name: str, model: str | None, policy: str, system: str, base_url: str | None, *, as_json: bool) -> None:
    """Store a model under a name of its own; without a model and its settings, remove the name."""
    settings = load_settings()
    if model is None and (policy or system or base_url):
        model = settings.models[name].model if name in settings.models else settings.default_model
        model = settings.models[model].model if model in settings.models else model
    if model is not None:
        _check_model(model)
    elif name not in settings.models:
        raise InputError(f"There is no alias {name!r} to remove. To store one, add a MODEL, or -s with a system text.")
    if policy:
        parse_policy(policy)
    made = ModelSettings(model, policy=policy, system=system, base_url=base_url) if model is not None else None
    path = set_alias(name, made)
    meaning = f" for {model}" if model else ""
    text = f"{'Stored' if model else 'Removed'} the name {escape_line(name)}{meaning} in {path}."
    print_result({**_describe_alias(name, made), "file": str(path)}, text, as_json=as_json, show=print_note)


def _describe_alias(name: str, model: ModelSettings | None) -> dict[str, Any]:
    return {"name": name, **(msgspec.to_builtins(model) if model is not None else {"model": None})}


def _check_model(name: str) -> None:
    provider = name.partition(":")[0]
    if provider not in PROVIDERS or (provider == name and name != "local"):
        # A letter or two are in the name of almost any model.
        hint = suggest_label(name) if len(name) > 2 else ""
        raise InputError(f"{name!r} names no known provider: write it as provider:model. {hint}".rstrip())


def show(settings: str | None, name: str | None, *, as_json: bool) -> None:
    """Print the settings, and the providers whose keys are stored; with a name, only the value of this setting."""
    path = Path(settings) if settings else None
    if name is not None:
        found = _describe_setting(name, path)
        value = found["value"]
        print_result(found, value if isinstance(value, str) else msgspec.json.encode(value).decode(), as_json=as_json)
        return
    encoded = msgspec.json.encode(load_settings(path))
    print_result(msgspec.json.decode(encoded), msgspec.json.format(encoded, indent=2).decode(), as_json=as_json)
    if not as_json:
        print_note(f"Settings: {path or get_settings_path()}.")
        print_note(f"Stored API keys: {', '.join(sorted(load_credentials())) or 'none'}.")


def _describe_setting(name: str, path: Path | None) -> dict[str, Any]:
    """Return the name and the value of a setting."""
    values = msgspec.to_builtins(load_settings(path))
    if name not in values:
        raise InputError(f"There is no setting {name!r}.{suggest(name, values)} `longtalk config show` prints all.")
    return {"name": name, "value": values[name]}

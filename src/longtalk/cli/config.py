"""`longtalk config`: show and change the settings, and store API keys of providers."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from longtalk._util.suggest import suggest
from longtalk.cli.output import escape_line, print_note, print_text, shorten
from longtalk.cli.tables import Column, print_table
from longtalk.errors import InputError
from longtalk.policies.notation import parse_policy
from longtalk.providers.registry import PROVIDERS, suggest_label
from longtalk.service.settings import (
    ModelSettings,
    check_credential,
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


def set_key(provider: str) -> None:
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
        print_note(f"There is no stored key of {provider}, so nothing was changed.")
        return
    path = store_credential(provider, key)
    print_note(f"{'Stored' if key else 'Removed'} the key of {provider} in {path}.")


def choose_default_model(name: str) -> None:
    """Store the model of conversations for which none is chosen; without a name, print it."""
    if not name:
        print_text(load_settings().default_model)
        return
    if name not in load_settings().models:
        _check_model(name)
    set_value("default_model", name)


def set_value(name: str, value: str) -> None:
    """Store one setting; an empty value removes it."""
    if name == "policy" and value:
        parse_policy(value)
    path = set_setting(name, value)
    print_note(f"{'Stored' if value else 'Removed'} {name} in {path}.")


def list_aliases() -> None:
    """Print a line for each model with a name of its own."""
    found = load_settings().models
    rows = [(name, each.model, each.policy or "-", shorten(each.system, 200) or "-") for name, each in found.items()]
    print_table(_ALIASES, rows)
    if not found:
        print_note("There are no aliases yet: `longtalk config alias NAME MODEL` stores one.")


def alias(name: str, model: str | None, policy: str, system: str, base_url: str | None) -> None:
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
    print_note(f"{'Stored' if model else 'Removed'} the name {escape_line(name)}{meaning} in {path}.")


def _check_model(name: str) -> None:
    provider = name.partition(":")[0]
    if provider not in PROVIDERS or (provider == name and name != "local"):
        hint = suggest_label(name)
        raise InputError(f"{name!r} names no known provider: write it as provider:model. {hint}".rstrip())


def show(settings: str | None, name: str | None = None) -> None:
    """Print the settings, and the providers whose keys are stored; with a name, only the value of this setting."""
    path = Path(settings) if settings else None
    if name is not None:
        values = msgspec.to_builtins(load_settings(path))
        if name not in values:
            raise InputError(f"There is no setting {name!r}.{suggest(name, values)} `longtalk config show` prints all.")
        value = values[name]
        print_text(value if isinstance(value, str) else msgspec.json.encode(value).decode())
        return
    print_text(msgspec.json.format(msgspec.json.encode(load_settings(path)), indent=2).decode())
    print_note(f"Settings: {path or get_settings_path()}.")
    print_note(f"Stored API keys: {', '.join(sorted(load_credentials())) or 'none'}.")

"""`longtalk config`: show and change the settings, and store API keys of providers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
    Column("options", rank=3, shortest=12),
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
    if name == "default_model" and value and (":" in value or value not in load_settings().models):
        value = _complete_model(value)
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
    rows = [
        (name, each.model, each.policy or "-", shorten(each.system, 200) or "-", format_options(each.options) or "-")
        for name, each in found.items()
    ]
    print_table(_ALIASES, rows)
    if not found:
        print_note("There are no aliases yet: `longtalk config alias NAME MODEL` stores one.")


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
    """Store a model under a name of its own; without a model and its settings, remove the name.

    Without a model, what is not given stays as it was stored; an empty value takes an option back.
    """
    settings = load_settings()
    before = settings.models.get(name)
    parsed = parse_options(options) or {}
    made: ModelSettings | None = None
    if model is not None:
        made = ModelSettings(_complete_model(model))
    elif policy or system or base_url or options:
        default = settings.models.get(settings.default_model)
        made = before or ModelSettings(default.model if default is not None else settings.default_model)
    elif before is None:
        raise InputError(f"There is no alias {name!r} to remove. To store one, add a MODEL, or -s with a system text.")
    if made is not None:
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
    path = set_alias(name, made)
    meaning = f" for {made.model}" if made else ""
    text = f"{'Stored' if made else 'Removed'} the name {escape_line(name)}{meaning} in {path}."
    print_result({**_describe_alias(name, made), "file": str(path)}, text, as_json=as_json, show=print_note)


def _describe_alias(name: str, model: ModelSettings | None) -> dict[str, Any]:
    return {"name": name, **(msgspec.to_builtins(model) if model is not None else {"model": None})}


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

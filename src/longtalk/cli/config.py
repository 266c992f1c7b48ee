"""`longtalk config`: show and change the settings, and store API keys of providers."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from longtalk.cli.output import print_note, print_text
from longtalk.errors import InputError
from longtalk.policies.notation import parse_policy
from longtalk.providers.registry import PROVIDERS
from longtalk.service.settings import (
    ModelSettings,
    check_credential,
    get_settings_path,
    load_credentials,
    load_settings,
    store_credential,
)
from longtalk.service.settings_file import set_alias, set_setting


def set_key(provider: str) -> None:
    """Read a key from standard input, without showing it on a terminal, and store it."""
    check_credential(provider, "")
    given = (
        click.prompt(f"API key of {provider}", hide_input=True, default="", show_default=False)
        if sys.stdin.isatty()
        else sys.stdin.readline()
    )
    key = given.strip()
    path = store_credential(provider, key)
    print_note(f"{'Stored' if key else 'Removed'} the key of {provider} in {path}.")


def set_value(name: str, value: str) -> None:
    """Store one setting; an empty value removes it."""
    if name == "policy" and value:
        parse_policy(value)
    path = set_setting(name, value)
    print_note(f"{'Stored' if value else 'Removed'} {name} in {path}.")


def alias(name: str, model: str | None, policy: str, system: str, base_url: str | None) -> None:
    """Store a model under a name of its own; without a model, remove the name."""
    if model is not None and model.partition(":")[0] not in PROVIDERS:
        raise InputError(f"{model!r} names no known provider: write it as provider:model.")
    if policy:
        parse_policy(policy)
    made = ModelSettings(model, policy=policy, system=system, base_url=base_url) if model is not None else None
    path = set_alias(name, made)
    print_note(f"{'Stored' if model else 'Removed'} the model {name} in {path}.")


def show(settings: str | None) -> None:
    """Print the settings, and the providers whose keys are stored."""
    path = Path(settings) if settings else None
    print_text(msgspec.json.format(msgspec.json.encode(load_settings(path)), indent=2).decode())
    print_note(f"Settings: {path or get_settings_path()}.")
    print_note(f"Stored API keys: {', '.join(sorted(load_credentials())) or 'none'}.")

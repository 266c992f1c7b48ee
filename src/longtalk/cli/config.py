"""`longtalk config`: show the settings, and store API keys of providers."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from longtalk.cli.output import print_note, print_text
from longtalk.errors import InputError
from longtalk.providers.registry import PROVIDERS
from longtalk.service.settings import get_settings_path, load_credentials, load_settings, store_credential


def set_key(provider: str) -> None:
    """Read a key from standard input, without showing it on a terminal, and store it."""
    known = list(PROVIDERS)
    if provider not in known:
        raise InputError(f"There is no provider {provider!r}. Known ones: {', '.join(known)}.")
    given = (
        click.prompt(f"API key of {provider}", hide_input=True, default="", show_default=False)
        if sys.stdin.isatty()
        else sys.stdin.readline()
    )
    key = given.strip()
    if not key.isprintable() or " " in key:
        raise InputError("An API key has no spaces and no control characters.")
    path = store_credential(provider, key)
    print_note(f"{'Stored' if key else 'Removed'} the key of {provider} in {path}.")


def show(settings: str | None) -> None:
    """Print the settings, and the providers whose keys are stored."""
    path = Path(settings) if settings else None
    print_text(msgspec.json.format(msgspec.json.encode(load_settings(path)), indent=2).decode())
    print_note(f"Settings: {path or get_settings_path()}.")
    print_note(f"Stored API keys: {', '.join(sorted(load_credentials())) or 'none'}.")

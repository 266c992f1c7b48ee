"""Check that a local model can run before a chat starts, and ask on a terminal before a large download."""

from __future__ import annotations

import sys

from longtalk.cli.output import print_note
from longtalk.cli.tty import read_lines
from longtalk.errors import InputError


def check_local_model(model: str) -> None:
    """Raise `InputError` if a local model is chosen but not available, so that the chat fails before it starts.

    On a terminal, ask before a large download.
    """
    name, _, path = model.partition(":")
    if name == "local":
        from longtalk.providers.local.catalog import find_model
        from longtalk.providers.local.engine import require_extra
        from longtalk.providers.local.weights import find_weights

        require_extra()
        if find_model(path) is None:
            find_weights(path)
        else:
            _confirm_download(path)


def _confirm_download(name: str) -> None:
    """Ask on a terminal whether the weights of a built-in model are to be downloaded, unless they are there."""
    from longtalk.providers.local.catalog import MODELS, record_default
    from longtalk.providers.local.weights import find_missing

    missing = find_missing(name)
    if missing is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    small = MODELS["135m"]
    if missing.name == small.name:
        return
    import click

    print_note(f"{missing.title}, the model of this machine, has to be downloaded once: {missing.size / 1e6:,.0f} MB.")
    choice = click.Choice(["y", "s", "n"])
    question = (
        f"Download it (y), take {small.title} ({small.size / 1e6:.0f} MB, but it mixes things up) (s), or stop (n)?"
    )
    with read_lines():
        answer = click.prompt(question, type=choice, default="y", show_choices=False, err=True)
    if answer == "n":
        raise SystemExit(0)
    if answer == "s":
        if name:
            raise InputError(f"Use -m local:{small.name} for {small.title}.")
        record_default(small.name)

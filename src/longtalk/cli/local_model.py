"""Have a local model ready before a conversation starts, and ask on a terminal before a large download."""

from __future__ import annotations

import sys

from longtalk.cli.output import print_note
from longtalk.cli.tty import read_lines
from longtalk.errors import InputError
from longtalk.providers.local.catalog import MODELS, LocalModel, find_model, record_default

_SMALLEST = MODELS["135m"]


def prepare_model(model: str) -> str:
    """Return a model's name; for `local`, that of the model that it means.

    If it is a local model, its weights are downloaded, or `InputError` is raised, before a conversation starts.
    """
    provider, _, name = model.partition(":")
    if provider != "local":
        return model
    from longtalk.providers.local.engine import require_extra
    from longtalk.providers.local.weights import find_missing, find_weights, provide

    require_extra()
    built_in = find_model(name)
    if built_in is None:
        find_weights(name)
        return model
    if find_missing(name) is not None and sys.stdin.isatty() and sys.stderr.isatty():
        built_in = _confirm_download(built_in, is_default=not name)
    try:
        return f"local:{provide(built_in, is_default=not name).name}"
    except KeyboardInterrupt:
        print_note("(The download was stopped. It goes on the next time.)")
        raise


def _confirm_download(model: LocalModel, *, is_default: bool) -> LocalModel:
    """Ask whether a model is to be downloaded, and return it, or the smallest one if that is chosen instead."""
    if model is _SMALLEST:
        return model
    import click

    what = ", the model of this machine," if is_default else ""
    print_note(f"{model.title}{what} has to be downloaded once: {model.size / 1e6:,.0f} MB.")
    size = f"{_SMALLEST.size / 1e6:.0f} MB"
    smaller = f", take {_SMALLEST.title} ({size}, but it mixes things up) (s)," if is_default else ""
    with read_lines():
        answer = click.prompt(
            f"Download it (y){smaller} or stop (n)?",
            type=click.Choice(["y", "s", "n"] if is_default else ["y", "n"]),
            default="y",
            show_choices=False,
            err=True,
        )
    if answer == "n":
        raise InputError("Nothing was downloaded. Choose another model with -m, such as ollama:llama3.2 or local:135m.")
    if answer == "s":
        record_default(_SMALLEST.name)
        return _SMALLEST
    return model

"""`longtalk models`: print the known models with their limits and prices."""

from __future__ import annotations

import sys

import msgspec

from longtalk.cli.output import pluralize, print_json, print_note, print_table
from longtalk.models.registry import Model, models

_HEADER = ("model", "window", "answer", "cache", "in", "out", "cached", "written", "long requests")


def run(*, words: tuple[str, ...], provider: str | None, as_json: bool) -> None:
    """Print one line for each matching model. Exit with status 1 if no model matches."""
    found = list(models(" ".join(words), provider=provider))
    if not found:
        print_note("No known model matches. To list all models, run `longtalk models`.")
        raise SystemExit(1)
    if as_json:
        for model in found:
            print_json({"label": model.label, **msgspec.to_builtins(model)})
        return
    # A program that reads the output from a pipe expects no header.
    print_table([*([_HEADER] if sys.stdout.isatty() else []), *map(_format_model, found)])
    print_note(f"{pluralize(len(found), 'model')}. Prices are in US dollars per million tokens.")


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
